package dispatch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/dispatch/internal/placement"
)

func TestHostMemoryHonoursControlGroups(t *testing.T) {
	const gib = 1 << 30
	meminfo := "MemTotal: 33554432 kB\nMemAvailable:   16777216 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
		limit int64
	}{
		{"no groups", map[string]string{"proc/meminfo": meminfo}, 16 * gib, 0},
		{"nothing known", nil, 0, 0},
		{"version 2, parent's limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "4294967296\n", "sys/fs/cgroup/a/memory.current": "2147483648\n",
			"sys/fs/cgroup/a/memory.stat": "anon 5\ninactive_file 1073741824\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
		}, 3 * gib, 4 * gib},
		{"version 1", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu:/x\n4:memory:/job\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/job/memory.usage_in_bytes": "2147483648\n",
		}, 0, gib},
		{"limit above the machine", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "9223372036854771712\n",
		}, 16 * gib, 0},
		{"a limited address space", map[string]string{
			"proc/meminfo": meminfo, "proc/self/statm": fmt.Sprintf("%d 5 3 1 0 9 0", gib/os.Getpagesize()),
			"proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units\nMax address space         4294967296           unlimited            bytes\n",
		}, 3 * gib, 0},
		{"an unlimited one", map[string]string{
			"proc/meminfo": meminfo, "proc/self/statm": "262144 5 3 1 0 9 0",
			"proc/self/limits": "Max address space         unlimited            unlimited            bytes\n",
		}, 16 * gib, 0},
		{"a used up one", map[string]string{
			"proc/meminfo": meminfo, "proc/self/statm": "262144 5 3 1 0 9 0",
			"proc/self/limits": "Max address space         1048576              unlimited            bytes\n",
		}, 1, 0},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			full := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := placement.HostMemory(os.DirFS(root)); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
		h := describeHost(os.DirFS(root))
		if h.AvailableBytes != c.want || h.LimitBytes != c.limit || (h.TotalBytes != 0) != (c.files != nil) {
			t.Errorf("%s: %+v, want a limit of %d", c.name, h, c.limit)
		}
		if h.CPUs < 1 || h.Threads < 1 {
			t.Errorf("%s: nothing computes: %+v", c.name, h)
		}
	}
}
