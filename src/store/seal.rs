//! Encryption of stored texts: AES-256-GCM by the crate aws-lc-rs, with a random nonce for each text.
//!
//! A sealed text consists of a marker byte, four bytes that name the key, the nonce, and the ciphertext with its tag.
//! The job's id is authenticated with it, so that a text that was moved to another job's row is detected.

use std::borrow::Cow;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use secrecy::{ExposeSecret, SecretString};

use super::Id;
use crate::error::Error;

/// The first byte of a sealed text. All other stored texts are JSON, which never begins with this byte.
const MARK: u8 = 1;
/// Whether a stored text is sealed.
pub(super) fn is_sealed(stored: &[u8]) -> bool {
    stored.first() == Some(&MARK)
}

/// The number of bytes of a key's hash that name the key: enough to tell a few keys apart, too few to learn anything
/// about the key.
const NAME: usize = 4;
const KEY: usize = 32;

/// The seal keys: the first one seals, all of them open, and the last and oldest one makes keyed hashes.
pub(crate) struct Sealer {
    keys: Vec<([u8; NAME], RandomizedNonceKey)>,
    marks: Option<hmac::Key>,
}

impl Sealer {
    pub(super) fn new(keys: &[SecretString]) -> Result<Sealer, Error> {
        let wrong = |number: usize| {
            Error::config(format!(
                "store: seal key {}: it is not 32 bytes in base64 (openssl rand -base64 32)",
                number + 1
            ))
        };
        let key = |(number, text): (usize, &SecretString)| {
            let bytes = BASE64.decode(text.expose_secret().trim()).map_err(|_| wrong(number))?;
            if bytes.len() != KEY {
                return Err(wrong(number));
            }
            let mut name = [0; NAME];
            name.copy_from_slice(&digest(&SHA256, &bytes).as_ref()[..NAME]);
            let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| wrong(number))?;
            Ok((name, key))
        };
        let keys_found = keys.iter().enumerate().map(key).collect::<Result<_, _>>()?;
        let marks = keys.last().and_then(|text| BASE64.decode(text.expose_secret().trim()).ok());
        Ok(Sealer { keys: keys_found, marks: marks.map(|bytes| hmac::Key::new(hmac::HMAC_SHA256, &bytes)) })
    }

    /// Encrypts a text. `None` if there is no key.
    pub(super) fn seal(&self, id: &Id, mut text: Vec<u8>) -> Option<Vec<u8>> {
        let (name, key) = self.keys.first()?;
        let nonce = key.seal_in_place_append_tag(Aad::from(id.as_bytes()), &mut text).ok()?;
        let mut sealed = Vec::with_capacity(1 + NAME + NONCE_LEN + text.len());
        sealed.push(MARK);
        sealed.extend_from_slice(name);
        sealed.extend_from_slice(nonce.as_ref());
        sealed.append(&mut text);
        Some(sealed)
    }

    /// As [`open`](Self::open), but without a copy of a text that is not sealed.
    pub(super) fn open_row<'a>(&self, id: &Id, stored: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        match stored.first() {
            Some(&MARK) => self.open(id, stored).map(Cow::Owned),
            _ => Some(Cow::Borrowed(stored)),
        }
    }

    /// A keyed hash of `parts`, which identifies a text without revealing it: equal for equal parts. `None` if there is
    /// no key.
    ///
    /// The oldest key makes it, so that it does not change when a new key is put in front.
    pub(super) fn mark(&self, parts: &[&str]) -> Option<String> {
        let mut context = hmac::Context::with_key(self.marks.as_ref()?);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        Some(BASE64.encode(context.sign()))
    }

    /// Decrypts a stored text if it is sealed. `None` if no key fits, or if the text was changed.
    pub(super) fn open(&self, id: &Id, stored: &[u8]) -> Option<Vec<u8>> {
        let Some((&MARK, rest)) = stored.split_first() else { return Some(stored.to_vec()) };
        let (name, rest) = rest.split_at_checked(NAME)?;
        let (nonce, text) = rest.split_at_checked(NONCE_LEN)?;
        self.keys.iter().filter(|(known, _)| known == name).find_map(|(_, key)| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut text = text.to_vec();
            key.open_in_place(nonce, Aad::from(id.as_bytes()), &mut text).ok().map(|plain| plain.to_vec())
        })
    }
}

#[cfg(test)]
mod tests;
