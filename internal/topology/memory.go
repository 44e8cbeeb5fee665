package topology

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// A MemoryGroup is a control group with a memory limit. Amounts are bytes.
type MemoryGroup struct {
	// Limit is the smaller one of the group's maximum and its soft limit: memory.max and
	// memory.high, or limit_in_bytes and soft_limit_in_bytes in version 1.
	Limit int64
	Left  int64 // until the limit; page cache that can be reclaimed does not count as used
	// Anonymous is what all processes of the group and of its children hold without a file behind it.
	Anonymous int64
}

// Allows returns how much anonymous memory a process that holds own bytes of it may hold: the limit
// without what other processes of the group hold. Less than 1/64 of the limit is taken for none: both
// numbers were not read at the same moment.
func (g MemoryGroup) Allows(own int64) int64 {
	others := g.Anonymous - own
	if others < g.Limit/64 {
		return g.Limit
	}
	return max(0, g.Limit-others)
}

// noLimit is from how much on a limit is none: version 1 writes a huge number.
const noLimit = 1 << 50

// memoryFiles are the names of a version's files, and of fields in memory.stat.
type memoryFiles struct {
	limits           [2]string
	used             string
	inactive         string
	anonymous, shmem string
}

var (
	memory1 = memoryFiles{limits: [2]string{"memory.limit_in_bytes", "memory.soft_limit_in_bytes"}, used: "memory.usage_in_bytes",
		inactive: "total_inactive_file", anonymous: "total_rss", shmem: "total_shmem"}
	memory2 = memoryFiles{limits: [2]string{"memory.max", "memory.high"}, used: "memory.current",
		inactive: "inactive_file", anonymous: "anon", shmem: "shmem"}
)

// limit returns the smaller limit of a folder, 0 if there is none. A limit of 0 bytes counts as 1: it
// stops the group.
func (f *memoryFiles) limit(root fs.FS, dir string) int64 {
	least := int64(0)
	for _, name := range f.limits {
		n, ok := number(text(root, path.Join(dir, name)))
		if ok && n >= 0 && n < noLimit && (least == 0 || n < least) {
			least = max(n, 1)
		}
	}
	return least
}

// MemoryGroups returns the control groups of this process that limit its memory, parents included.
// root holds /proc and /sys. It reads the files each time, so it may be called while they change. A
// call takes about 100 µs.
func MemoryGroups(root fs.FS) (out []MemoryGroup) {
	for _, g := range groups(root, "memory") {
		names := &memory2
		if g.version == 1 {
			names = &memory1
		}
		for dir := range g.folders() {
			n := names.limit(root, dir)
			if n == 0 {
				continue
			}
			stat := text(root, path.Join(dir, "memory.stat"))
			in := func(name string) int64 {
				n, _ := number(field(stat, name+" "))
				return n
			}
			used, _ := number(text(root, path.Join(dir, names.used)))
			out = append(out, MemoryGroup{Limit: n, Left: max(n-used+in(names.inactive), 0),
				Anonymous: in(names.anonymous) + in(names.shmem)})
		}
	}
	return out
}

// Anonymous returns the anonymous memory that this process holds, in bytes; 0 means unknown.
func Anonymous(root fs.FS) int64 {
	fields := strings.Fields(text(root, "proc/self/statm"))
	if len(fields) < 3 {
		return 0
	}
	resident, _ := number(fields[1])
	files, _ := number(fields[2])
	return max(0, resident-files) * int64(os.Getpagesize())
}

// MemoryStall returns how long some task of this process's control group, or of the machine, has
// waited for memory since the start, as pressure stall information (PSI) counts it. 0 means none or
// unknown.
func MemoryStall(root fs.FS) time.Duration {
	var files []string
	for _, g := range groups(root, "memory") {
		if g.version == 2 {
			for _, base := range g.bases {
				files = append(files, path.Join(base, g.dir, "memory.pressure"))
			}
		}
	}
	for _, name := range append(files, "proc/pressure/memory") {
		_, total, ok := strings.Cut(field(text(root, name), "some "), "total=")
		if micros, err := strconv.ParseInt(total, 10, 64); ok && err == nil && micros >= 0 {
			return time.Duration(micros) * time.Microsecond
		}
	}
	return 0
}

// AddressSpace returns the limit of this process's address space, as ulimit -v sets it, and what is left of it, in
// bytes. Mapped files count. A limit of 0 means none or unknown.
func AddressSpace(root fs.FS) (limit, left int64) {
	soft, _, _ := strings.Cut(field(text(root, "proc/self/limits"), "Max address space "), " ")
	limit, ok := number(soft)
	if !ok || limit <= 0 || limit >= noLimit {
		return 0, 0
	}
	pages, _, _ := strings.Cut(text(root, "proc/self/statm"), " ")
	used, _ := number(pages)
	return limit, max(0, limit-used*int64(os.Getpagesize()))
}

// Memory returns the machine's memory and what is available of it, in bytes; 0 means unknown. Limits
// of control groups are not part of it.
func Memory(root fs.FS) (total, available int64) {
	info := text(root, "proc/meminfo")
	for _, f := range []struct {
		name string
		to   *int64
	}{{"MemTotal:", &total}, {"MemAvailable:", &available}} {
		kib, _ := number(strings.TrimSuffix(field(info, f.name), "kB"))
		*f.to = kib << 10
	}
	return total, available
}
