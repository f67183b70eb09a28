//! Makes a source from a URL, for options and environment variables.

use super::RemoteSource;
use super::http::shown;
use crate::Error;

impl RemoteSource {
    /// The source that a URL names, for programs that take the address of their configuration as an option. `secret`
    /// says where the token, password or connection string is: `env:NAME` or `file:PATH`.
    ///
    /// | URL | source | `secret` |
    /// |---|---|---|
    /// | `https://HOST/PATH` | [`http`](Self::http) | sent as `Authorization: Bearer …` |
    /// | `consul+https://HOST:8500/PREFIX` | [`consul`](Self::consul) | sent as `X-Consul-Token` |
    /// | `etcd+https://USER@HOST:2379/PREFIX` | [`etcd`](Self::etcd) | the user's password |
    /// | `azure-app-configuration:PREFIX` | [`azure_app_configuration`](Self::azure_app_configuration) | the connection string |
    ///
    /// `http` in place of `https` is accepted for this machine.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config): the URL has none of these forms, or a secret is missing.
    ///
    /// ```
    /// use integration_client::config::RemoteSource;
    ///
    /// let source = RemoteSource::by_url("consul+https://consul.internal:8500/ic/", Some("env:CONSUL_HTTP_TOKEN"))?;
    /// # drop(source);
    /// # Ok::<(), integration_client::Error>(())
    /// ```
    pub fn by_url(url: &str, secret: Option<&str>) -> Result<RemoteSource, Error> {
        let wrong = |why: &str| Error::config(format!("{}: {why}", shown(url)));
        if let Some(prefix) = url.strip_prefix("azure-app-configuration:") {
            let secret = secret.ok_or_else(|| wrong("state the connection string as its secret"))?;
            return Ok(RemoteSource::azure_app_configuration(secret, prefix.trim_start_matches('/')));
        }
        let (kind, rest) = match url.split_once("://") {
            Some(("http" | "https", _)) => ("", url),
            Some(("consul+http" | "consul+https", _)) => ("consul", &url["consul+".len()..]),
            Some(("etcd+http" | "etcd+https", _)) => ("etcd", &url["etcd+".len()..]),
            _ => {
                return Err(wrong(
                    "a source is https://…, consul+https://HOST/PREFIX, etcd+https://HOST/PREFIX or azure-app-configuration:PREFIX",
                ));
            }
        };
        if kind.is_empty() {
            let source = RemoteSource::http(rest);
            return Ok(secret.map(|secret| RemoteSource::http(rest).bearer(secret)).unwrap_or(source));
        }
        // The host ends at the first slash after the scheme.
        let from = rest.find("://").map_or(0, |at| at + 3);
        let (server, prefix) = match rest[from..].find('/') {
            Some(at) => (&rest[..from + at], &rest[from + at + 1..]),
            None => (rest, ""),
        };
        if prefix.is_empty() {
            return Err(wrong("the prefix of the keys is missing: put it behind the host"));
        }
        if kind == "consul" {
            let source = RemoteSource::consul(server, prefix);
            return Ok(match secret {
                Some(secret) => source.header("x-consul-token", secret),
                None => source,
            });
        }
        match (server[from..].rsplit_once('@'), secret) {
            (Some((user, host)), Some(secret)) if !user.contains(':') => {
                Ok(RemoteSource::etcd(&format!("{}{host}", &rest[..from]), prefix).user(user, secret))
            }
            (Some((user, _)), _) if user.contains(':') => {
                Err(wrong("the URL holds a password; state it as the secret instead"))
            }
            (Some(_), _) => Err(wrong("state the user's password as its secret")),
            (None, Some(_)) => Err(wrong("a password needs a user: etcd+https://USER@HOST/PREFIX")),
            (None, None) => Ok(RemoteSource::etcd(server, prefix)),
        }
    }
}

#[cfg(test)]
mod tests;
