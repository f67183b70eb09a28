//! Detects whether a file is on a network file system, where SQLite's locks and shared memory do not work, and whether
//! it is mounted by itself, without SQLite's files beside it.
//!
//! Linux lists the mounts in a file; on other systems nothing is known, and no path is refused.

use std::path::Path;

/// Network file systems.
const NETWORK: [&str; 14] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "glusterfs",
    "gpfs",
    "beegfs",
    "orangefs",
    "ncpfs",
];
/// Network file systems in user space, by their program: the type is `fuse.` and one of these.
const BY_PROGRAM: [&str; 6] = ["sshfs", "glusterfs", "s3fs", "rclone", "davfs", "ceph-fuse"];

/// The type of the network file system that `path` is on; `None` for local ones.
pub(super) fn network(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let kind = kind_of(&mounts, &folder)?;
    let program = kind.strip_prefix("fuse.").is_some_and(|program| BY_PROGRAM.contains(&program));
    (program || NETWORK.contains(&kind)).then(|| kind.to_owned())
}

/// Whether the file at `path` is a mount point: a bind mount of this file alone.
pub(super) fn is_mount_point(path: &Path) -> bool {
    let (Ok(file), Ok(mounts)) = (path.canonicalize(), std::fs::read_to_string("/proc/self/mountinfo")) else {
        return false;
    };
    is_point(&mounts, &file)
}

fn is_point(mounts: &str, file: &Path) -> bool {
    points(mounts).any(|(point, _)| Path::new(&point) == file)
}

/// The mount points and the types of what is mounted there.
fn points(mounts: &str) -> impl Iterator<Item = (String, &str)> {
    mounts.lines().filter_map(|line| {
        // "36 35 98:0 /root /mount/point options - kind source options"
        let (left, right) = line.split_once(" - ")?;
        Some((unescaped(left.split(' ').nth(4)?), right.split(' ').next()?))
    })
}

/// The type of the mount that contains `folder`: the mount point with the longest path, and the last of equal ones.
fn kind_of<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let around = points(mounts).filter(|(point, _)| folder.starts_with(point));
    around.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}

/// Decodes blanks and the like, which are written as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests;
