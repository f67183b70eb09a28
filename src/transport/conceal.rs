//! Replaces the secrets of a request in a text that its vendor sent. Error pages of firewalls, and services for tests,
//! repeat the headers of a request.
//!
//! A vendor may write a character of the secret as its format demands. So the text is searched as it is, and with its
//! JSON escapes, percent signs or HTML references decoded.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use secrecy::{ExposeSecret, SecretString};

use crate::config::AuthScheme;
use crate::route::Authorization;

/// Replaces a secret.
const CONCEALED: &str = "***";
/// Shorter secrets and parts of secrets are not looked for, because ordinary words contain them. In characters.
const SHORTEST: usize = 6;
/// The shortest beginning of a secret that is replaced at the end of a text, which may have been cut there. In bytes.
const SHORTEST_BEGINNING: usize = 4;

impl Authorization {
    /// Replaces the secrets in `text` by `***`, in each form in which a request with `scheme` carries them: the secret
    /// itself, and with basic authentication also its base64, the user and the password. Secrets, users and passwords
    /// of fewer than six characters stay. So does a user that `url` holds, the request's own: it names an account, and
    /// links of the vendor would lead nowhere without it. In a text that may be cut (`is_cut`), the beginning of a
    /// secret at its end is replaced too.
    pub(crate) fn conceal(&self, scheme: &AuthScheme, text: &str, is_cut: bool, url: &str) -> String {
        let secret = self.secrets.credential.as_ref().map_or("", |secret| secret.expose_secret());
        let is_basic = *scheme == AuthScheme::Basic;
        let encoded = if is_basic { in_base64(secret) } else { SecretString::default() };
        let mut forms = vec![secret.trim(), encoded.expose_secret()];
        if is_basic && let Some((user, password)) = secret.split_once(':') {
            forms.push(password);
            forms.extend((!url.contains(user)).then_some(user));
        }
        forms.extend(self.secrets.headers.iter().map(|(_, secret)| secret.expose_secret().trim()));
        forms.retain(|form| form.chars().count() >= SHORTEST);
        let mut found = places(text, &forms, is_cut);
        found.sort_by_key(|place| place.start);
        let mut concealed = String::with_capacity(text.len());
        let mut written = 0;
        for Range { start, end } in found {
            if start >= written {
                concealed.push_str(&text[written..start]);
                concealed.push_str(CONCEALED);
            }
            written = written.max(end);
        }
        concealed.push_str(&text[written..]);
        concealed
    }
}

/// A basic credential (`user:password`) as a request carries it, without padding.
pub(super) fn in_base64(credential: &str) -> SecretString {
    SecretString::from(STANDARD_NO_PAD.encode(credential))
}

/// The places of `forms`, none of which is empty, in `text`, as it is and decoded. In a text that may be cut, the
/// beginning of a form at its end counts too.
pub(super) fn places(text: &str, forms: &[&str], is_cut: bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for decode in DECODERS {
        let view = View::new(text, decode);
        forms.iter().for_each(|form| view.find(form.as_bytes(), is_cut, &mut found));
    }
    found
}

/// A decoded text, and where its bytes stand in the text that the vendor sent.
struct View {
    bytes: Vec<u8>,
    /// For each byte the beginning of its character or escape, and then the end of the text.
    places: Vec<usize>,
}

/// Decodes the escape at the beginning of a text, and returns its length in the text; `None` if there is none.
type Decode = fn(&str, &mut Vec<u8>) -> Option<usize>;

/// The first one leaves the text as it is.
const DECODERS: [Decode; 4] = [|_, _| None, json, percent, html];

impl View {
    fn new(text: &str, decode: Decode) -> View {
        let mut view = View { bytes: Vec::with_capacity(text.len()), places: Vec::with_capacity(text.len() + 1) };
        let mut at = 0;
        while let Some(first) = text[at..].chars().next() {
            let length = decode(&text[at..], &mut view.bytes);
            if length.is_none() {
                push(first, &mut view.bytes);
            }
            view.places.resize(view.bytes.len(), at);
            at += length.unwrap_or(first.len_utf8());
        }
        view.places.push(at);
        view
    }

    /// Adds the places of `form`, which is not empty, and in a cut text that of its beginning at the end.
    fn find(&self, form: &[u8], is_cut: bool, found: &mut Vec<Range<usize>>) {
        let windows = self.bytes.windows(form.len()).enumerate();
        let starts = windows.filter(|(_, window)| *window == form).map(|(start, _)| start);
        found.extend(starts.map(|start| self.places[start]..self.places[start + form.len()]));
        let lengths = if is_cut { SHORTEST_BEGINNING..form.len() } else { 0..0 };
        let cut = lengths.rev().find(|length| self.bytes.ends_with(&form[..*length]));
        found.extend(cut.map(|length| self.places[self.bytes.len() - length]..self.places[self.bytes.len()]));
    }
}

fn push(character: char, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// `\/`, `\"`, `\u002b`
fn json(text: &str, bytes: &mut Vec<u8>) -> Option<usize> {
    let escape = text.strip_prefix('\\')?;
    if let Some(code) = escape.strip_prefix('u') {
        push(char::from_u32(u32::from_str_radix(code.get(..4)?, 16).ok()?)?, bytes);
        return Some(6);
    }
    push(escape.chars().next().filter(|character| matches!(character, '"' | '\'' | '/' | '\\'))?, bytes);
    Some(2)
}

/// `%2B`
fn percent(text: &str, bytes: &mut Vec<u8>) -> Option<usize> {
    bytes.push(u8::from_str_radix(text.strip_prefix('%')?.get(..2)?, 16).ok()?);
    Some(3)
}

/// `&amp;`, `&#43;`, `&#x2b;`
fn html(text: &str, bytes: &mut Vec<u8>) -> Option<usize> {
    let reference = text.strip_prefix('&')?;
    let length = reference.bytes().take(8).position(|byte| byte == b';')?;
    let character = match &reference[..length] {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        other => {
            let number = other.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(number) => u32::from_str_radix(number, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    push(character, bytes);
    Some(length + 2)
}

#[cfg(test)]
mod tests;
