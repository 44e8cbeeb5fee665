package hostmem

import "golang.org/x/sys/unix"

// DiskSpace returns the bytes that the file system of a folder has in all, and those that are free for this process.
func DiskSpace(dir string) (all, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}
