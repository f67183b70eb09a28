//! A configuration source whose text a test can replace.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use integration_client::Error;
use integration_client::config::{ConfigSource, Sources};

#[derive(Clone, Debug)]
pub(crate) struct TextSource(Arc<Mutex<String>>);

impl TextSource {
    pub(crate) fn new(text: impl Into<String>) -> TextSource {
        TextSource(Arc::new(Mutex::new(text.into())))
    }

    pub(crate) fn set(&self, text: impl Into<String>) {
        *self.0.lock().unwrap() = text.into();
    }
}

impl ConfigSource for TextSource {
    fn load(&self) -> Pin<Box<dyn Future<Output = Result<Sources, Error>> + Send + '_>> {
        let sources = Sources::new().without_catalogue().file("vendors.toml", self.0.lock().unwrap().as_str());
        Box::pin(async { Ok(sources) })
    }
}
