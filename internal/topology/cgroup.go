package topology

import (
	"io/fs"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A group is a control group of the process: a folder below one of several bases. Inside a
// container the group is often the root.
type group struct {
	bases   []string
	dir     string
	version int
}

// groups returns the process's control groups for a controller: the group of version 2, and that
// of version 1.
func groups(root fs.FS, controller string) (out []group) {
	for line := range strings.Lines(text(root, "proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		g := group{dir: path.Clean("/" + parts[2]), version: 1}
		switch {
		case parts[1] == "":
			g.bases, g.version = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, 2
		case slices.Contains(strings.Split(parts[1], ","), controller):
			g.bases = slices.Compact([]string{"sys/fs/cgroup/" + controller, "sys/fs/cgroup/" + parts[1]})
		default:
			continue
		}
		out = append(out, g)
	}
	return out
}

// folders yields the folders where the group and its parents may be, innermost first.
func (g *group) folders() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, base := range g.bases {
			for dir := g.dir; ; dir = path.Dir(dir) {
				if !yield(path.Join(base, dir)) {
					return
				}
				if dir == "/" {
					break
				}
			}
		}
	}
}

// quota returns the smallest CPU quota of the process's control groups, in processors; 0 means no
// limit.
func quota(root fs.FS) float64 {
	least := 0.0
	for _, g := range groups(root, "cpu") {
		read := quota1
		if g.version == 2 {
			read = quota2
		}
		for dir := range g.folders() {
			if q := read(root, dir); q > 0 && (least == 0 || q < least) {
				least = q
			}
		}
	}
	return least
}

// cpuset returns the processors that the innermost control group with a list allows, nil if no
// group has one.
func cpuset(root fs.FS) []int {
	for _, g := range groups(root, "cpuset") {
		name := "cpuset.cpus.effective"
		if g.version == 1 {
			name = "cpuset.effective_cpus"
		}
		for dir := range g.folders() {
			if l := list(text(root, path.Join(dir, name))); l != nil {
				return l
			}
		}
	}
	return nil
}

// quota2 reads "QUOTA PERIOD" or "max PERIOD".
func quota2(root fs.FS, dir string) float64 {
	fields := strings.Fields(text(root, dir+"/cpu.max"))
	if len(fields) != 2 {
		return 0
	}
	return share(fields[0], fields[1])
}

func quota1(root fs.FS, dir string) float64 {
	return share(text(root, dir+"/cpu.cfs_quota_us"), text(root, dir+"/cpu.cfs_period_us"))
}

// share returns quota ÷ period, or 0 if the quota is "max", -1 or not a number.
func share(quota, period string) float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || !(q > 0) || !(p > 0) || q/p > maxCPUs {
		return 0
	}
	return q / p
}

// field returns what follows prefix on the line that begins with it.
func field(text, prefix string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// number parses a number; "max" and "" are none.
func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n, err == nil
}
