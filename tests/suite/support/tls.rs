//! Certificates for vendors of the tests: a certificate authority, and valid and invalid leaf certificates of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test crate uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The kinds of vendor certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaf {
    /// For localhost and 127.0.0.1, signed by the authority.
    Good,
    /// As [`Good`](Leaf::Good), but expired years ago.
    Expired,
    /// Signed by the authority, for another host.
    OtherHost,
    /// For the right host, but signed only by itself.
    SelfSigned,
}

/// A certificate authority, and the file that a vendor's entry names as `extra_ca`. The file is deleted with the value.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    path: PathBuf,
}

impl Authority {
    pub fn new() -> Authority {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("integration-client-authority-{}-{number}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, pem).unwrap();
        Authority { issuer: Issuer::new(params, key), path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An acceptor of TLS connections with such a certificate, for these protocols.
    pub fn acceptor(&self, leaf: Leaf, protocols: &[&str]) -> TlsAcceptor {
        let names = match leaf {
            Leaf::OtherHost => vec!["elsewhere.example".to_owned()],
            _ => vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
        };
        let mut params = CertificateParams::new(names).unwrap();
        if leaf == Leaf::Expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = match leaf {
            Leaf::SelfSigned => params.self_signed(&key),
            _ => params.signed_by(&key, &self.issuer),
        };
        let chain = vec![certificate.unwrap().der().clone()];
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
