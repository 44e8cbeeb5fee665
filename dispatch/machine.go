package dispatch

import (
	"bufio"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// RuntimeBytes is the memory that a plan keeps for the Go runtime, the tokenizer and the program,
// which no ledger counts.
const RuntimeBytes = 128 << 20

// HostMemory returns the memory in bytes that this process may take: the machine's available memory,
// or the rest of its control group's limit if that is less. 0 means unknown.
func HostMemory() int64 { return hostMemory("/") }

// hostMemory reads below root, so that tests can lay out a machine.
func hostMemory(root string) int64 {
	available := meminfo(filepath.Join(root, "proc/meminfo"), "MemAvailable:")
	for _, g := range memoryGroups(root) {
		if available == 0 || g.left < available {
			available = g.left
		}
	}
	return available
}

// meminfo is a field of a meminfo file in bytes, 0 where it is not there.
func meminfo(name, field string) int64 {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) >= 2 && fields[0] == field {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// A memoryGroup is a control group with a limit, and what is left of that, in bytes.
type memoryGroup struct{ limit, left int64 }

// memoryGroups are the control groups above the process that have a limit (version 2, and
// the memory controller of version 1). Page cache that can be reclaimed does not count as
// used.
func memoryGroups(root string) []memoryGroup {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	var groups []memoryGroup
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, limit, use, cache := "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
		if parts[1] != "" {
			if parts[1] != "memory" {
				continue
			}
			base, limit, use, cache = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			at := filepath.Join(root, base, dir)
			if n, ok := readInt(filepath.Join(at, limit)); ok && n < 1<<50 {
				used, _ := readInt(filepath.Join(at, use))
				left := max(n-used+statField(filepath.Join(at, "memory.stat"), cache), 0)
				groups = append(groups, memoryGroup{limit: n, left: left})
			}
			if dir == "/" {
				break
			}
		}
	}
	return groups
}

// readInt reads a number; "max" and a missing file are not ok.
func readInt(name string) (int64, bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

func statField(name, field string) int64 {
	b, _ := os.ReadFile(name)
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
