use super::*;

#[test]
fn addresses_are_read() {
    assert!(matches!("[::1]:80".parse::<Listen>().unwrap().at, At::Tcp(address) if address.port() == 80));
    #[cfg(unix)]
    assert!(matches!("unix:/run/x".parse::<Listen>().unwrap().at, At::Unix(_)));
    for bad in ["", "8099", "localhost", "unix:", ":8099"] {
        assert!(bad.parse::<Listen>().is_err(), "{bad}");
    }
}
