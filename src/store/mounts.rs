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
    fn mounted_file_is_a_mount_point() {
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      63 27 254:0 /srv/jobs.db /data/my\\040jobs.db rw,relatime - ext4 /dev/vda rw\n\
                      64 27 254:0 /srv/all /srv/all rw,relatime - ext4 /dev/vda rw\n";
        assert!(is_point(mounts, Path::new("/data/my jobs.db")));
        for path in ["/data/my jobs.db-wal", "/data", "/srv/jobs.db", "/srv/all/jobs.db", "/data/my"] {
            assert!(!is_point(mounts, Path::new(path)), "{path}");
        }
    }

    #[test]
    fn file_of_its_folder_is_no_mount_point() {
        assert!(!is_mount_point(&std::env::current_exe().unwrap()));
        assert!(!is_mount_point(&std::env::temp_dir().join("no-such-file")));
    }

    #[test]
    fn local_folder_is_no_network_mount() {
        assert_eq!(network(&std::env::temp_dir().join("store.db")), None);
    }
}
