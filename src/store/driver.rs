//! What the store's statements need of a database: text with numbered parameters in, rows of four kinds of values out.
//!
//! Both databases take `$1` and know integers of 64 bits, texts and bytes, so nearly every statement is written once. What
//! comes back is checked value by value: rows can be edited by hand, and a column of another kind must be an error that
//! names it and not a panic.

use std::fmt;

use crate::BoxFuture;
use crate::clock::MachineTime;

/// Which SQL is spoken, where the two differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// A parameter.
pub(crate) enum Arg<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
    /// Arrays are PostgreSQL's alone.
    Ints(Vec<i64>),
    Texts(Vec<&'a str>),
    Blobs(Vec<&'a [u8]>),
}

impl From<i64> for Arg<'_> {
    fn from(value: i64) -> Self {
        Arg::Int(Some(value))
    }
}

impl From<Option<i64>> for Arg<'_> {
    fn from(value: Option<i64>) -> Self {
        Arg::Int(value)
    }
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(value: &'a str) -> Self {
        Arg::Text(Some(value))
    }
}

impl<'a> From<&'a String> for Arg<'a> {
    fn from(value: &'a String) -> Self {
        Arg::Text(Some(value))
    }
}

impl<'a> From<Option<&'a str>> for Arg<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Arg::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(value: &'a [u8]) -> Self {
        Arg::Bytes(Some(value))
    }
}

impl<'a> From<Option<&'a [u8]>> for Arg<'a> {
    fn from(value: Option<&'a [u8]>) -> Self {
        Arg::Bytes(value)
    }
}

impl<'a> From<&'a Vec<u8>> for Arg<'a> {
    fn from(value: &'a Vec<u8>) -> Self {
        Arg::Bytes(Some(value))
    }
}

/// The parameters of a statement.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::driver::Arg::from($value)),*] };
}
pub(crate) use args;

/// A value of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// A kind that no statement asks for.
    Other,
}

/// A row, read from left to right.
pub(crate) struct Row {
    values: std::vec::IntoIter<Value>,
    read: usize,
}

impl Row {
    pub(crate) fn new(values: Vec<Value>) -> Row {
        Row { values: values.into_iter(), read: 0 }
    }

    fn next(&mut self) -> Value {
        self.read += 1;
        self.values.next().unwrap_or(Value::Null)
    }

    fn wrong(&self, wanted: &str) -> DbError {
        DbError::new(DbKind::Nonsense, format!("column {} of a row is no {wanted}; was it edited by hand?", self.read))
    }

    pub(crate) fn int(&mut self) -> Result<i64, DbError> {
        self.maybe_int()?.ok_or_else(|| self.wrong("number"))
    }

    pub(crate) fn maybe_int(&mut self) -> Result<Option<i64>, DbError> {
        match self.next() {
            Value::Int(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            _ => Err(self.wrong("number")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, DbError> {
        self.maybe_text()?.ok_or_else(|| self.wrong("text"))
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>, DbError> {
        match self.next() {
            Value::Text(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            _ => Err(self.wrong("text")),
        }
    }

    /// Bytes; a text is its bytes, for SQLite's shell writes one where somebody mends a row.
    pub(crate) fn maybe_bytes(&mut self) -> Result<Option<Vec<u8>>, DbError> {
        match self.next() {
            Value::Bytes(value) => Ok(Some(value)),
            Value::Text(value) => Ok(Some(value.into_bytes())),
            Value::Null => Ok(None),
            _ => Err(self.wrong("sequence of bytes")),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, DbError> {
        self.maybe_bytes()?.ok_or_else(|| self.wrong("sequence of bytes"))
    }

    pub(crate) fn id(&mut self) -> Result<super::Id, DbError> {
        let bytes = self.bytes()?;
        super::Id::from_slice(&bytes).map_err(|_| self.wrong("id of 16 bytes"))
    }
}

/// What went wrong in the database, as far as it matters for what to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DbKind {
    /// It cannot be reached, the connection broke, or what it leads to takes no writes: the connection is not used again.
    Unreachable,
    /// Somebody else was in the way: the same again may work.
    Again,
    /// The disk is full, or the file cannot be written.
    Storage,
    /// What the statement touched is damaged. Other rows may be well.
    Damaged,
    /// A row holds what no version of this library wrote.
    Nonsense,
    /// Anything else.
    Other,
}

/// A failed statement. Its message holds no parameter.
#[derive(Clone, Debug)]
pub(crate) struct DbError {
    pub(crate) kind: DbKind,
    message: String,
    may_be_committed: bool,
}

impl DbError {
    pub(crate) fn new(kind: DbKind, message: impl Into<String>) -> DbError {
        DbError { kind, message: message.into(), may_be_committed: false }
    }

    /// The transaction may have been committed all the same.
    pub(crate) fn in_doubt(mut self) -> DbError {
        self.may_be_committed = true;
        self
    }

    /// Nothing was committed.
    pub(crate) fn certain(mut self) -> DbError {
        self.may_be_committed = false;
        self
    }

    /// The same as an error of the way to the database.
    pub(crate) fn unreachable(mut self) -> DbError {
        self.kind = DbKind::Unreachable;
        self
    }

    /// Whether the transaction that it ended may have been committed all the same.
    pub(crate) fn may_be_committed(&self) -> bool {
        self.may_be_committed
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DbError {}

/// A connection.
pub(crate) trait Driver: Send {
    fn dialect(&self) -> Dialect;

    /// Runs a statement; how many rows it touched.
    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>>;

    /// Runs a statement; the rows that it returns. Every such statement states how many there are at most.
    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>>;

    /// Begins a transaction, one that `writes` or one that only reads. Returns the store's clock.
    fn begin(&mut self, writes: bool) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            // A transaction that reads first and writes then would be refused where another writes in between.
            let sql = match self.dialect() {
                Dialect::Sqlite if writes => "BEGIN IMMEDIATE",
                _ => "BEGIN",
            };
            self.execute(sql, Vec::new()).await?;
            self.now().await
        })
    }

    /// The store's clock: milliseconds since 1970, moved by no step of a wall clock of this machine.
    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>>;

    /// The time of the machine that this process runs on, for databases that have no clock of their own.
    fn machine(&self) -> MachineTime {
        MachineTime::read()
    }
}

/// A connection, for whoever runs a statement on it.
pub(crate) type Db<'a> = &'a mut (dyn Driver + 'a);

/// Opens connections to one store.
pub(crate) trait Connect: Send + Sync {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>>;
}
