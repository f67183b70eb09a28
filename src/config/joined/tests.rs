use super::super::source::StaticSource;
use super::*;

/// A source of several servers: one of them states the fingerprint, and another one is loaded.
#[derive(Debug)]
struct Replicas {
    stated: u64,
    loaded: Option<u64>,
}

impl ConfigSource for Replicas {
    fn load(&self) -> LoadFuture<'_> {
        Box::pin(async move { Ok(Sources::new().with_fingerprint(self.loaded)) })
    }

    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async move { Some(self.stated) })
    }
}

#[tokio::test]
async fn fingerprint_of_older_content_matches_no_newer_one() {
    for (loaded, is_same) in [(Some(2), true), (Some(1), false), (None, true)] {
        let rest: Vec<Arc<dyn ConfigSource>> = vec![Arc::new(Replicas { stated: 2, loaded })];
        let joined = JoinedSource::new(Arc::new(StaticSource::toml("")), rest);
        let stated = joined.fingerprint().await;
        let of_content = joined.load().await.unwrap().fingerprint();
        assert_eq!((of_content.is_some(), of_content == stated), (true, is_same), "{loaded:?}");
    }
}
