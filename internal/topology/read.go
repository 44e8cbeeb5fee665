package topology

import (
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Folders of the Linux kernel's tree of devices.
const (
	cpus  = "sys/devices/system/cpu"
	nodes = "sys/devices/system/node"
)

// Read returns the machine whose /proc and /sys are in root, for a process that may run on the
// given processors and whose control groups allow them; nil allows all. Files that cannot be read
// or make no sense are treated as missing. Without a list of processors the machine has none.
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

// core returns the lowest of the processors that are threads of id's core.
func core(root fs.FS, id int) int {
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
		if l := list(text(root, fmt.Sprintf("%s/cpu%d/topology/%s", cpus, id, name))); len(l) > 0 {
			return l[0]
		}
	}
	return id
}

// speed returns id's speed in the system's units, its capacity or else the highest frequency. 0
// means unknown.
func speed(root fs.FS, id int) float64 {
	if v, err := strconv.ParseFloat(text(root, fmt.Sprintf("%s/cpu%d/cpu_capacity", cpus, id)), 64); err == nil {
		return v
	}
	v, _ := strconv.ParseFloat(text(root, fmt.Sprintf("%s/cpu%d/cpufreq/cpuinfo_max_freq", cpus, id)), 64)
	return v
}

// maxCPUs exceeds the processors of any machine, so that a damaged list stays small.
const maxCPUs = 1 << 16

// list reads a list such as "0-3,8,10-11" in ascending order. It returns nil if s is not a list.
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

// text returns the trimmed contents of a small file, or "" if it cannot be read.
func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
