//! The file of a Unix socket. It is removed with its listener, unless another process has replaced it by then.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::net::{UnixListener, UnixStream};

/// The file of a listener.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode; `None` if they could not be read.
    id: Option<(u64, u64)>,
    was_removed: AtomicBool,
}

impl SocketFile {
    /// Removes the file, if it still is the one that the listener made. Only the first call does anything, and it must
    /// precede the end of the listener: afterwards the system may give the inode to the file of another process.
    pub(super) fn remove(&self) {
        let is_first = !self.was_removed.swap(true, Relaxed);
        if is_first && self.id.is_some() && id_of(&self.path) == self.id {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Listens on a Unix socket, which the user and the group of this process may use.
pub(super) async fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && let Err(error) = UnixStream::connect(path).await {
        match error.kind() {
            // A socket file without a listener was left by a process that was killed.
            io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            io::ErrorKind::PermissionDenied => {
                let why = "a socket of another user is there; remove the file if no process listens on it any more";
                return Err(io::Error::new(error.kind(), why));
            }
            // There may be a listener: on Linux, one with too many connections to accept at the moment.
            _ => {}
        }
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile { path: path.to_owned(), id: id_of(path), was_removed: AtomicBool::new(false) };
    std::fs::set_permissions(path, Permissions::from_mode(0o660))?;
    Ok((listener, file))
}

#[cfg(test)]
mod tests;
