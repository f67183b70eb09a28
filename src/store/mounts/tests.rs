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
