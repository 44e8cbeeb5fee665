package hostmem

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Resident returns how many of n bytes at off are in the page cache. The system says so only to users
// who may write to the file; to others all pages seem to be there. It takes microseconds per MiB.
func (m *Mapping) Resident(off, n int64) (int64, error) {
	if err := m.within(off, n); err != nil || n == 0 {
		return 0, err
	}
	page := int64(os.Getpagesize())
	var pages [4096]byte
	var bytes int64
	for at := off &^ (page - 1); at < off+n; at += int64(len(pages)) * page {
		size := min(int64(len(pages))*page, int64(len(m.data))-at)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m.data[at])), uintptr(size), uintptr(unsafe.Pointer(&pages[0])))
		if errno != 0 {
			return 0, os.NewSyscallError("mincore", errno)
		}
		for i := int64(0); i*page < size; i++ {
			if pages[i]&1 != 0 {
				bytes += max(0, min(at+(i+1)*page, off+n)-max(at+i*page, off))
			}
		}
	}
	return bytes, nil
}

// Evict removes n bytes at off from the page cache, but for pages at the ends that are only partly
// within, and for pages that a process maps. It is a hint.
func (m *Mapping) Evict(off, n int64) { _ = unix.Fadvise(m.fd, off, n, unix.FADV_DONTNEED) }
