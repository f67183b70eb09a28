//! The interface between the store's statements and a database: SQL with numbered parameters in, rows of four kinds of
//! values out.
//!
//! Both databases take `$1` and have 64-bit integers, texts and bytes, so nearly every statement is written once. Each
//! value of a row is checked: rows can be edited by hand, and a column of another type must be an error that names the
//! column, not a panic.

use std::fmt;
use std::time::Duration;

use crate::BoxFuture;
use crate::clock::MachineTime;

/// The SQL dialect, for statements that differ between the two databases.
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
    /// Arrays exist in PostgreSQL only; [`rows`] makes them.
    Ints(Vec<i64>),
    MaybeInts(Vec<Option<i64>>),
    Texts(Vec<&'a str>),
    Blobs(Vec<Option<&'a [u8]>>),
    /// A JSON text, for SQLite; [`rows`] makes it.
    Json(String),
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

/// Builds the parameters of a statement.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::driver::Arg::from($value)),*] };
}
pub(crate) use args;

/// The values of one column, for many rows that go into one statement.
pub(crate) enum Column<'a> {
    Ints(Vec<i64>),
    MaybeInts(Vec<Option<i64>>),
    Texts(Vec<&'a str>),
    Blobs(Vec<Option<&'a [u8]>>),
}

impl Column<'_> {
    fn len(&self) -> usize {
        match self {
            Column::Ints(values) => values.len(),
            Column::MaybeInts(values) => values.len(),
            Column::Texts(values) => values.len(),
            Column::Blobs(values) => values.len(),
        }
    }

    /// Appends a value of the column as JSON: bytes in hexadecimal.
    fn write(&self, row: usize, json: &mut String) {
        use fmt::Write;
        // Writing to a string cannot fail.
        let _ = match self {
            Column::Ints(values) => write!(json, "{}", values[row]),
            Column::MaybeInts(values) => match values[row] {
                None => json.write_str("null"),
                Some(value) => write!(json, "{value}"),
            },
            Column::Texts(values) => write!(json, "{}", serde_json::Value::from(values[row])),
            Column::Blobs(values) => match values[row] {
                None => json.write_str("null"),
                Some(bytes) => {
                    json.push('"');
                    for byte in bytes {
                        json.push(char::from(HEX[usize::from(byte >> 4)]));
                        json.push(char::from(HEX[usize::from(byte & 15)]));
                    }
                    json.write_str("\"")
                }
            },
        };
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The parameters for a statement about many rows. PostgreSQL takes an array for each column, which `unnest` joins to
/// rows. SQLite takes one JSON text with an array for each row, which `json_each` reads; bytes are in hexadecimal
/// there.
pub(crate) fn rows<'a>(dialect: Dialect, columns: Vec<Column<'a>>) -> Vec<Arg<'a>> {
    let array = |column| match column {
        Column::Ints(values) => Arg::Ints(values),
        Column::MaybeInts(values) => Arg::MaybeInts(values),
        Column::Texts(values) => Arg::Texts(values),
        Column::Blobs(values) => Arg::Blobs(values),
    };
    match dialect {
        Dialect::Postgres => columns.into_iter().map(array).collect(),
        Dialect::Sqlite => {
            let count = columns.iter().map(Column::len).min().unwrap_or(0);
            let mut json = String::from("[");
            for row in 0..count {
                json.push_str(if row == 0 { "[" } else { ",[" });
                for (number, column) in columns.iter().enumerate() {
                    json.push_str(if number == 0 { "" } else { "," });
                    column.write(row, &mut json);
                }
                json.push(']');
            }
            json.push(']');
            vec![Arg::Json(json)]
        }
    }
}

/// A value of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// A type that no statement asks for.
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
        DbError::new(
            DbKind::Nonsense,
            format!("column {} of a row does not hold a {wanted}; was it edited by hand?", self.read),
        )
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

    /// Bytes. A text counts as its bytes, because SQLite's shell writes a text when an operator edits a row.
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
        super::Id::from_slice(&bytes).map_err(|_| self.wrong("16-byte id"))
    }
}

/// The class of a database error, by what the caller should do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DbKind {
    /// The server is unreachable, the connection broke, or it leads to a server without writes: the connection is not
    /// used again.
    Unreachable,
    /// Another transaction was in the way: a retry may succeed.
    Again,
    /// Another transaction has kept a row or a table locked for as long as a statement waits for one lock (PostgreSQL).
    /// A statement that needs several locks may wait for each of them. Work on other rows may succeed.
    Locked,
    /// The disk is full, or the file cannot be written.
    Storage,
    /// The data that the statement touched is damaged. Other rows may be intact.
    Damaged,
    /// A row holds a value that no version of this library writes.
    Nonsense,
    /// Anything else.
    Other,
}

/// A failed statement. Its message contains no parameter.
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

    /// Marks that the transaction may have been committed nevertheless.
    pub(crate) fn in_doubt(mut self) -> DbError {
        self.may_be_committed = true;
        self
    }

    /// Marks that nothing was committed.
    pub(crate) fn certain(mut self) -> DbError {
        self.may_be_committed = false;
        self
    }

    /// Changes the kind to [`DbKind::Unreachable`], so that the connection is not used again.
    pub(crate) fn unreachable(mut self) -> DbError {
        self.kind = DbKind::Unreachable;
        self
    }

    /// Whether the failed transaction may have been committed nevertheless.
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

    /// Runs a statement. Returns the number of rows that it changed.
    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>>;

    /// Runs a statement. Returns its rows; every statement bounds their number.
    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>>;

    /// Begins a transaction; `writes` says whether it writes. Returns the store's time.
    fn begin(&mut self, writes: bool) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            // SQLite would refuse a write in a transaction that began with a read if another process wrote in between.
            let sql = match self.dialect() {
                Dialect::Sqlite if writes => "BEGIN IMMEDIATE",
                _ => "BEGIN",
            };
            self.execute(sql, Vec::new()).await?;
            self.now().await
        })
    }

    /// The store's time: milliseconds since 1970, not affected by steps of this machine's wall clock. It goes on within
    /// a transaction.
    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>>;

    /// The time of this process's machine, for databases without a clock of their own.
    fn machine(&self) -> MachineTime {
        MachineTime::read()
    }
}

/// A connection, borrowed to run statements on it.
pub(crate) type Db<'a> = &'a mut (dyn Driver + 'a);

/// Opens connections to one store.
pub(crate) trait Connect: Send + Sync {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>>;
}

/// The longest that one try of a transaction may take, connecting included. Beside the database a group of writes takes
/// milliseconds, the largest claim and the largest hand-over of messages well below a second. Over a network each
/// statement takes a round trip more, or two behind a pooler.
pub(super) const TRANSACTION: Duration = Duration::from_secs(6);

/// About the most statements of one transaction that puts pieces of work together: they fit into [`TRANSACTION`] with
/// 30 ms for each. Their number says nothing of the bytes, which are bounded apart.
pub(crate) const STATEMENTS: usize = 200;

/// Lets the transaction wait for each lock for a moment only (PostgreSQL). Other statements of it may do so too.
pub(super) async fn wait_briefly(db: Db<'_>) -> Result<(), DbError> {
    if db.dialect() == Dialect::Postgres {
        db.execute("SET LOCAL lock_timeout = '100ms'", Vec::new()).await?;
    }
    Ok(())
}

/// The most bytes of one page of rows, unless its first row alone has more: a page is in memory as a whole, and must be read
/// in time.
pub(super) const PAGE_BYTES: i64 = 8 << 20;

/// How many of the next rows, which have these sizes, go into one page; one at least.
pub(super) fn rows_of_page(sizes: impl Iterator<Item = i64>) -> usize {
    let mut bytes = 0i64;
    let fits = |size: &i64| {
        bytes = bytes.saturating_add(*size);
        bytes <= PAGE_BYTES
    };
    sizes.take_while(fits).count().max(1)
}

/// Decodes rows. A row that was edited and cannot be decoded is logged and left out, so that it does not hide the
/// others.
pub(super) fn readable<T>(rows: Vec<Row>, read: impl Fn(Row) -> Result<T, DbError>) -> Vec<T> {
    let told = |error: DbError| tracing::error!(%error, "a row of the store cannot be read, and is left out");
    rows.into_iter().filter_map(|row| read(row).map_err(told).ok()).collect()
}

#[cfg(test)]
mod tests;
