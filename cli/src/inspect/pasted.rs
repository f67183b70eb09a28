//! Parses a response as a person pastes it: headers alone, or the output of `curl -i` or `curl -v`.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The parts of a response that were found in the pasted text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Response {
    pub(super) status: Option<u16>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// Reads the last response in `bytes`. Responses of a proxy, redirects or `100 Continue` may precede it.
///
/// Never fails: lines that are not headers are skipped.
pub(super) fn parse(bytes: &[u8]) -> Response {
    let mut response = Response::default();
    let mut rest = bytes;
    let mut in_headers = false;
    while !rest.is_empty() {
        let (raw, after) = match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) => (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default()),
            None => (rest, &[][..]),
        };
        let line = plain(raw);
        if let Some(status) = status_line(line) {
            response = Response { status: Some(status), ..Response::default() };
            in_headers = true;
        } else if line.is_empty() {
            // A blank line before the first header belongs to the paste, and one after an interim response precedes
            // another response. Any other blank line ends the headers.
            let interim = response.status.is_some_and(|status| status < 200) || next_is_status(after);
            if in_headers && !interim {
                response.body = after.to_vec();
                break;
            }
            in_headers = in_headers && !interim;
        } else if !is_chatter(raw) && add(&mut response.headers, line) {
            in_headers = true;
        }
        rest = after;
    }
    response
}

/// A line without its end and without the `< ` with which `curl -v` marks received lines.
fn plain(raw: &[u8]) -> &[u8] {
    let line = raw.strip_suffix(b"\r").unwrap_or(raw);
    let line = line.strip_prefix(b"< ").unwrap_or(if line == b"<" { b"" } else { line });
    line.trim_ascii_start()
}

/// Whether `curl -v` printed this line about itself or about the request.
fn is_chatter(raw: &[u8]) -> bool {
    [&b"* "[..], b"> ", b"{ [", b"} ["].iter().any(|start| raw.starts_with(start)) || raw == b">\r" || raw == b">"
}

fn next_is_status(rest: &[u8]) -> bool {
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    status_line(plain(line)).is_some()
}

/// The status of a status line like `HTTP/1.1 429 Too Many Requests` or `HTTP/2 429`.
fn status_line(line: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(line.strip_prefix(b"HTTP/")?).ok()?;
    let status = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    (100..1000).contains(&status).then_some(status)
}

/// Adds a line of the form `name: value`. Returns `false` if the line is not a header.
fn add(headers: &mut HeaderMap, line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    let (name, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
    match (HeaderName::from_bytes(name.trim_ascii()), HeaderValue::from_bytes(value.trim_ascii())) {
        // The append fails if the map is full, at about 24,576 names.
        (Ok(name), Ok(value)) => headers.try_append(name, value).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, status: Option<u16>, headers: &[(&str, &str)], body: &str) {
        let response = parse(text.as_bytes());
        assert_eq!(response.status, status);
        let found: Vec<(&str, &str)> =
            response.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(found, headers);
        assert_eq!(String::from_utf8_lossy(&response.body), body);
    }

    #[test]
    fn headers_alone_are_parsed() {
        check("Retry-After: 60\nX-A:b", None, &[("retry-after", "60"), ("x-a", "b")], "");
        check("\n\n  Retry-After: 60\r\n\r\nbody\n", None, &[("retry-after", "60")], "body\n");
    }

    #[test]
    fn curl_output_is_parsed() {
        check("HTTP/2 429 \r\nretry-after: 60\r\n\r\n{\"a\": 1}", Some(429), &[("retry-after", "60")], "{\"a\": 1}");
        let hops = "HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 302 Found\r\nlocation: /b\r\n\r\n\
                    HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\n\r\nno";
        check(hops, Some(503), &[("retry-after", "5")], "no");
        let verbose =
            "* Connected to x\n> GET / HTTP/1.1\n> accept: */*\n>\n< HTTP/1.1 429 Too Many\n< retry-after: 5\n< \nno";
        check(verbose, Some(429), &[("retry-after", "5")], "no");
    }

    #[test]
    fn bytes_never_make_it_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        let pieces: [&[u8]; 9] = [b"HTTP/", b"1.1 ", b"429", b"\r\n", b"\n\n", b": ", b"< ", b"\xff\0", b"a"];
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.usize(..12)).flat_map(|_| pieces[random.usize(..9)].to_vec()).collect();
            parse(&bytes);
        }
    }
}
