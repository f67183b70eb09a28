//! The pool in an object store, S3 or Azure Blob Storage: one object per limit, below a prefix. A write is conditional:
//! the object still has the version that was read (`If-Match`), or does not exist (`If-None-Match: *`).

use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::path::Path;
use object_store::{
    ClientConfigKey, ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig, UpdateVersion,
};
use url::Url;

use super::clockless::{Answered, Clockless, Found, Swaps, date};
use super::unique_number;
use crate::error::Error;

/// The longest wait for a connection, and for an answer. A call may take 5 s.
const TIMES: [(ClientConfigKey, &str); 2] = [(ClientConfigKey::ConnectTimeout, "2s"), (ClientConfigKey::Timeout, "4s")];
const TRIES: Duration = Duration::from_secs(4);

/// The pool in an object store.
pub(crate) type Objects = Clockless<Bucket>;

pub(crate) struct Bucket {
    store: Box<dyn ObjectStore>,
    prefix: Path,
}

/// Opens the pool at `s3://bucket/prefix` or `az://container/prefix`. Other settings come from the usual environment
/// variables (`AWS_…`, `AZURE_…`); the URL's query overrides them, as in `?endpoint=…&allow_http=true`.
pub(super) async fn open(url: &str) -> Result<Objects, Error> {
    let failed = |why: String| Error::config(format!("sharing through an object store: {why}"));
    let objects = Bucket::new(url).map_err(failed)?;
    objects.probe().await.map_err(failed)?;
    Ok(Clockless::new(objects))
}

impl Bucket {
    fn new(url: &str) -> Result<Bucket, String> {
        let url = Url::parse(url)
            .map_err(|error| format!("the URL is s3://bucket/prefix or az://container/prefix: {error}"))?;
        let bucket = url.host_str().filter(|name| !name.is_empty());
        let bucket =
            bucket.ok_or("the URL names no bucket and no container: s3://bucket/prefix or az://container/prefix")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL holds a user or a password; state keys by the environment's variables".to_owned());
        }
        let prefix = Path::from_url_path(url.path()).map_err(|error| format!("the prefix is no path: {error}"))?;
        // One retry is enough: the task that calls the store calls again anyway, with its demand at that time.
        let retry = RetryConfig { max_retries: 1, retry_timeout: TRIES, ..RetryConfig::default() };
        let store: Box<dyn ObjectStore> = match url.scheme() {
            "s3" => {
                let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                let mut builder = builder.with_http_connector(Dating);
                for (key, time) in TIMES {
                    builder = builder.with_config(AmazonS3ConfigKey::Client(key), time);
                }
                for (key, value) in url.query_pairs() {
                    builder = builder.with_config(known(&key)?, value);
                }
                check_endpoint(builder.get_config_value(&AmazonS3ConfigKey::Endpoint))?;
                check_endpoint(builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint))?;
                check_region(builder.get_config_value(&AmazonS3ConfigKey::Region))?;
                Box::new(builder.with_retry(retry).build().map_err(|error| in_words(&error))?)
            }
            _ => {
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket);
                let mut builder = builder.with_http_connector(Dating);
                for (key, time) in TIMES {
                    builder = builder.with_config(AzureConfigKey::Client(key), time);
                }
                for (key, value) in url.query_pairs() {
                    builder = builder.with_config(known(&key)?, value);
                }
                check_endpoint(builder.get_config_value(&AzureConfigKey::Endpoint))?;
                Box::new(builder.with_retry(retry).build().map_err(|error| in_words(&error))?)
            }
        };
        Ok(Bucket { store, prefix })
    }

    /// Tries conditional writes: a store that ignored the conditions would grant the same units twice.
    async fn probe(&self) -> Result<(), String> {
        let name = format!("probe-{:x}", unique_number());
        let write = |text: &str, version: Option<String>| {
            let text = text.to_owned();
            let name = name.clone();
            async move { self.write(&name, text, version.as_deref()).await }
        };
        let first = write("1", None).await? && !write("2", None).await?;
        let found = self.read(&name).await?.found.filter(|found| found.text == "1");
        let second = match found {
            Some(Found { version, .. }) => {
                write("3", Some(version.clone())).await? && !write("4", Some(version)).await?
            }
            None => false,
        };
        let deleted = self.store.delete(&self.path(&name)).await;
        if let Err(error) = deleted {
            tracing::warn!(
                why = in_words(&error),
                name,
                "an object that was made to try the store could not be deleted"
            );
        }
        if first && second {
            return Ok(());
        }
        Err("it writes without the condition of a write (`If-Match`, `If-None-Match`), and units would be given twice; \
             use Amazon S3, Azure Blob Storage, or one that knows these conditions"
            .to_owned())
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join("integration-client").join(name)
    }
}

impl Swaps for Bucket {
    async fn read(&self, limit: &str) -> Result<Answered, String> {
        let found = match self.store.get(&self.path(limit)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { source, .. }) if is_missing_bucket(source.as_ref()) => {
                return Err("there is no such bucket or container; make it first".to_owned());
            }
            // The crate passes no date on with this error. So only the first write of a ledger has no date.
            Err(object_store::Error::NotFound { .. }) => return Ok(Answered { found: None, date: None }),
            Err(error) => return Err(in_words(&error)),
        };
        let date = found.extensions.get::<Date>().map(|Date(date)| *date);
        let version = found.meta.e_tag.clone().ok_or("an object has no ETag, by which its version is known")?;
        let bytes = found.bytes().await.map_err(|error| in_words(&error))?;
        // A value that is not text is not a ledger: `?` makes the ledger count as lost.
        let text = String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| "?".to_owned());
        Ok(Answered { found: Some(Found { text, version }), date })
    }

    async fn write(&self, limit: &str, text: String, version: Option<&str>) -> Result<bool, String> {
        let mode = match version {
            None => PutMode::Create,
            Some(tag) => PutMode::Update(UpdateVersion { e_tag: Some(tag.to_owned()), version: None }),
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.store.put_opts(&self.path(limit), text.into(), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
            // The object was deleted after it was read.
            Err(object_store::Error::NotFound { source, .. }) if !is_missing_bucket(source.as_ref()) => Ok(false),
            Err(error) => Err(in_words(&error)),
        }
    }
}

/// The date of a response, which is passed on in its extensions.
#[derive(Clone, Copy, Debug)]
struct Date(u64);

/// Makes the crate's own HTTP clients, with a [`Date`] added to each response.
#[derive(Debug)]
struct Dating;

#[derive(Debug)]
struct Dated(HttpClient);

impl HttpConnector for Dating {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Dated(ReqwestConnector::default().connect(options)?)))
    }
}

#[async_trait::async_trait]
impl HttpService for Dated {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut response = self.0.execute(request).await?;
        if let Some(date) = date(response.headers()) {
            response.extensions_mut().insert(Date(date));
        }
        Ok(response)
    }
}

fn known<T: std::str::FromStr>(key: &str) -> Result<T, String> {
    key.parse().map_err(|_| format!("the URL's query has `{key}`, which is no setting of this store"))
}

/// Checked here because the crate panics if an endpoint is not a URL.
fn check_endpoint(endpoint: Option<String>) -> Result<(), String> {
    let Some(endpoint) = endpoint else { return Ok(()) };
    match Url::parse(&endpoint) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        _ => Err("the endpoint, of the URL's query or of the environment, is no address that begins with https://"
            .to_owned()),
    }
}

/// Checked here because the region becomes a part of the server's address.
fn check_region(region: Option<String>) -> Result<(), String> {
    let is_part = |region: &str| region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match region.filter(|region| !is_part(region)) {
        None => Ok(()),
        Some(_) => Err("the region, of the URL's query or of the environment, is none".to_owned()),
    }
}

fn is_missing_bucket(error: &(dyn std::error::Error + 'static)) -> bool {
    let said = error.to_string();
    ["NoSuchBucket", "ContainerNotFound"].iter().any(|name| said.contains(name))
}

/// An error in one line, without the store's addresses.
fn in_words(error: &object_store::Error) -> String {
    use object_store::Error;
    let (what, source) = match error {
        Error::NotFound { source, .. } if is_missing_bucket(source.as_ref()) => {
            return "there is no such bucket or container; make it first".to_owned();
        }
        Error::PermissionDenied { source, .. } => {
            ("it does not permit this: reading, writing and deleting objects is needed", source)
        }
        Error::Unauthenticated { source, .. } => ("it does not accept the keys of the environment", source),
        Error::Generic { source, .. } => ("it cannot be asked", source),
        other => return without_body(&other.to_string()),
    };
    let mut last: &dyn std::error::Error = source.as_ref();
    while let Some(behind) = last.source() {
        last = behind;
    }
    format!("{what}: {}", without_body(&last.to_string()))
}

/// A server's message, reduced to its error code: the rest of the document may repeat a session token or the name of a
/// key.
fn without_body(said: &str) -> String {
    let code = said.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let shown = code.unwrap_or_else(|| said.split('<').next().unwrap_or_default());
    shown.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests;
