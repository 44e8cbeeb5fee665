package topology

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestTheLimitIsTheLeastOfHardAndSoft: only the maximum counted, and of version 2's files only
// memory.max; a group whose soft limit was lower throttled the server.
func TestTheLimitIsTheLeastOfHardAndSoft(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name  string
		files []string
		want  []MemoryGroup
	}{
		{"version 2, soft below hard", []string{"proc/self/cgroup", "0::/a/b",
			"sys/fs/cgroup/a/b/memory.max", "104857600", "sys/fs/cgroup/a/b/memory.high", "52428800", "sys/fs/cgroup/a/b/memory.current", "10485760",
			"sys/fs/cgroup/a/b/memory.stat", "anon 5242880\ninactive_file 1048576\nshmem 1048576"},
			[]MemoryGroup{{Limit: 50 * mib, Left: 41 * mib, Anonymous: 6 * mib}}},
		{"version 2, a parent's soft limit alone", []string{"proc/self/cgroup", "0::/a/b",
			"sys/fs/cgroup/a/b/memory.max", "max", "sys/fs/cgroup/a/b/memory.high", "max",
			"sys/fs/cgroup/a/memory.max", "max", "sys/fs/cgroup/a/memory.high", "52428800"},
			[]MemoryGroup{{Limit: 50 * mib, Left: 50 * mib}}},
		{"version 1", []string{"proc/self/cgroup", "4:memory:/job",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "104857600", "sys/fs/cgroup/memory/job/memory.soft_limit_in_bytes", "94371840",
			"sys/fs/cgroup/memory/job/memory.stat", "rss 1\ntotal_rss 10485760\ntotal_shmem 0",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712", "sys/fs/cgroup/memory/memory.soft_limit_in_bytes", "9223372036854771712"},
			[]MemoryGroup{{Limit: 90 * mib, Left: 90 * mib, Anonymous: 10 * mib}}},
		{"version 1, hard below soft", []string{"proc/self/cgroup", "4:memory:/job",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "104857600", "sys/fs/cgroup/memory/job/memory.soft_limit_in_bytes", "9223372036854771712"},
			[]MemoryGroup{{Limit: 100 * mib, Left: 100 * mib}}},
		{"nothing allowed", []string{"proc/self/cgroup", "0::/a", "sys/fs/cgroup/a/memory.high", "0"}, []MemoryGroup{{Limit: 1, Left: 1}}},
		{"no limits", []string{"proc/self/cgroup", "0::/a\n4:memory:/b", "sys/fs/cgroup/a/memory.high", "max", "sys/fs/cgroup/a/memory.max", "much"}, nil},
	} {
		if got := MemoryGroups(files(with(map[string]string{}, c.files...))); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestAllows(t *testing.T) {
	g := MemoryGroup{Limit: 128, Anonymous: 70}
	for own, want := range map[int64]int64{70: 128, 50: 108, 90: 128, 0: 58, 69: 128, 68: 126} {
		if got := g.Allows(own); got != want {
			t.Errorf("a process with %d bytes may hold %d, want %d", own, got, want)
		}
	}
	if got := (MemoryGroup{Limit: 10, Anonymous: 70}).Allows(5); got != 0 {
		t.Errorf("got %d, want 0: others hold more than the limit", got)
	}
}

func TestMemoryStall(t *testing.T) {
	const machine, group = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000\nfull avg10=0 total=1", "some avg10=0.10 avg60=0.00 avg300=0.00 total=3000"
	for _, c := range []struct {
		name  string
		files []string
		want  time.Duration
	}{
		{"the group's", []string{"proc/self/cgroup", "0::/a", "sys/fs/cgroup/a/memory.pressure", group, "proc/pressure/memory", machine}, 3 * time.Millisecond},
		{"the machine's", []string{"proc/self/cgroup", "4:memory:/a", "proc/pressure/memory", machine}, 2 * time.Millisecond},
		{"none", nil, 0},
		{"damaged", []string{"proc/pressure/memory", "some total=many"}, 0},
	} {
		if got := MemoryStall(files(with(map[string]string{}, c.files...))); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAnonymous(t *testing.T) {
	root := files(map[string]string{"proc/self/statm": "1000 300 100 5 0 400 0"})
	if got, want := Anonymous(root), int64(200*os.Getpagesize()); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if got := Anonymous(files(nil)); got != 0 {
		t.Errorf("%d bytes on a system that does not say", got)
	}
}
