package topology

import (
	"fmt"
	"io/fs"
	"iter"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Folders of the Linux kernel's tree of devices.
const (
	cpus  = "sys/devices/system/cpu"
	nodes = "sys/devices/system/node"
)

// Read is the machine whose /proc and /sys are in root, for a process that is allowed on the
// processors given, and whose control groups allow it on them; nil allows all. What cannot be
// read or makes no sense is taken as not said; without a list of processors there are none.
func Read(root fs.FS, allowed []int) Machine {
	online := list(text(root, cpus+"/online"))
	m := Machine{Quota: quota(root), Memory: readNodes(root)}
	inGroup := cpuset(root)
	all := len(list(text(root, cpus+"/present")))
	place := map[int]int{}
	for _, n := range m.Memory {
		for _, c := range list(text(root, fmt.Sprintf("%s/node%d/cpulist", nodes, n.ID))) {
			place[c] = n.ID
		}
	}
	fastest := 0.0
	for _, id := range online {
		if allowed != nil && !slices.Contains(allowed, id) || inGroup != nil && !slices.Contains(inGroup, id) {
			continue
		}
		c := CPU{ID: id, Core: core(root, id), Node: place[id], Speed: speed(root, id)}
		fastest = max(fastest, c.Speed)
		m.CPUs = append(m.CPUs, c)
	}
	for i := range m.CPUs {
		if c := &m.CPUs[i]; c.Speed <= 0 || fastest <= 0 {
			c.Speed = 1
		} else {
			c.Speed = math.Round(4*c.Speed/fastest) / 4
		}
	}
	m.Offline = max(all-len(m.CPUs), 0)
	return m
}

// core is the lowest of the processors that are threads of id's core.
func core(root fs.FS, id int) int {
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
		if l := list(text(root, fmt.Sprintf("%s/cpu%d/topology/%s", cpus, id, name))); len(l) > 0 {
			return l[0]
		}
	}
	return id
}

// speed is what the system says of id's speed, in units of its own: its capacity, or the
// highest frequency. 0 is not said.
func speed(root fs.FS, id int) float64 {
	if v, err := strconv.ParseFloat(text(root, fmt.Sprintf("%s/cpu%d/cpu_capacity", cpus, id)), 64); err == nil {
		return v
	}
	v, _ := strconv.ParseFloat(text(root, fmt.Sprintf("%s/cpu%d/cpufreq/cpuinfo_max_freq", cpus, id)), 64)
	return v
}

// group is a control group of the process, as the folder that it may be in below several
// bases, since containers see their own group as the root.
type group struct {
	bases   []string
	dir     string
	version int
}

// groups are the process's control groups of a controller: version 2's one group, and
// version 1's own.
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
			g.bases = []string{"sys/fs/cgroup/" + controller, "sys/fs/cgroup/" + parts[1]}
		default:
			continue
		}
		out = append(out, g)
	}
	return out
}

// folders are where the group and those above it may be, the innermost first.
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

// quota is the least that the control groups above the process allow (version 2, and the
// cpu controller of version 1), in processors; 0 is no limit.
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

// cpuset are the processors that the innermost control group with a list of them allows;
// nil where none says.
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

// share is quota ÷ period, 0 where the quota is "max", -1 or no number.
func share(quota, period string) float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || !(q > 0) || !(p > 0) || q/p > maxCPUs {
		return 0
	}
	return q / p
}

// maxCPUs is more processors than a machine has, so that a damaged list stays small.
const maxCPUs = 1 << 16

// list reads a list such as "0-3,8,10-11", in rising order; nil where it is none.
func list(s string) []int {
	if s == "" {
		return nil
	}
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(first)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(last)
		}
		if err != nil || a < 0 || b < a || b >= maxCPUs {
			return nil
		}
		for i := a; i <= b; i++ {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// text is a small file's text without the space around it; "" where it cannot be read.
func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
