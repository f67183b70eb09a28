//! Detects whether a file is on a network file system, where SQLite's locks and shared memory do not work.
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

/// The type of the mount that contains `folder`: the mount point with the longest path, and the last of equal ones.
fn kind_of<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let mut found: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        // "36 35 98:0 /root /mount/point options - kind source options"
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (left.split(' ').nth(4), right.split(' ').next()) else { continue };
        let point = unescaped(point);
        if folder.starts_with(&point) && found.is_none_or(|(length, _)| point.len() >= length) {
            found = Some((point.len(), kind));
        }
    }
    found.map(|(_, kind)| kind)
}

/// Decodes blanks and the like, which are written as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_mount_decides() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      40 22 0:36 / /srv rw shared:2 - nfs4 server:/export rw\n\
                      41 40 8:2 / /srv/my\\040disk rw - xfs /dev/sdb rw\n\
                      42 22 0:40 / /home/me/far rw master:3 - fuse.sshfs me@far: rw\n\
                      a line of another kind\n";
        let kind = |path: &str| kind_of(mounts, Path::new(path));
        assert_eq!(kind("/var/lib"), Some("ext4"));
        assert_eq!(kind("/srv"), Some("nfs4"));
        assert_eq!(kind("/srv/data/deep"), Some("nfs4"));
        assert_eq!(kind("/srvdata"), Some("ext4"), "names are whole");
        assert_eq!(kind("/srv/my disk/x"), Some("xfs"));
        assert_eq!(kind("/home/me/far"), Some("fuse.sshfs"));
        assert_eq!(kind_of("", Path::new("/")), None);
    }

    #[test]
    fn local_folder_is_no_network_mount() {
        assert_eq!(network(&std::env::temp_dir().join("store.db")), None);
    }
}
