package topology

import (
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
)

// files is a made-up machine: contents by name.
func files(contents map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range contents {
		out[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return out
}

// server has two nodes of 32 cores of two threads; the second threads are numbered from 64.
func server() map[string]string {
	f := map[string]string{
		cpus + "/online": "0-127", cpus + "/present": "0-127", nodes + "/online": "0-1",
		nodes + "/node0/cpulist": "0-31,64-95", nodes + "/node1/cpulist": "32-63,96-127",
	}
	for id := range 128 {
		f[fmt.Sprintf("%s/cpu%d/topology/core_cpus_list", cpus, id)] = fmt.Sprintf("%d,%d", id%64, id%64+64)
	}
	return f
}

// hybrid has two fast cores of two threads and four slow ones of one.
func hybrid() map[string]string {
	f := map[string]string{cpus + "/online": "0-7", cpus + "/present": "0-7"}
	for id := range 8 {
		siblings, khz := fmt.Sprint(id), 3_600_000
		if id < 4 {
			siblings, khz = fmt.Sprintf("%d-%d", id&^1, id|1), 5_100_000+100_000*(id/2)
		}
		f[fmt.Sprintf("%s/cpu%d/topology/thread_siblings_list", cpus, id)] = siblings
		f[fmt.Sprintf("%s/cpu%d/cpufreq/cpuinfo_max_freq", cpus, id)] = fmt.Sprint(khz)
	}
	return f
}

func with(base map[string]string, more ...string) map[string]string {
	for i := 0; i < len(more); i += 2 {
		base[more[i]] = more[i+1]
	}
	return base
}

// eight has eight nodes of eight cores, near in pairs; node 3 has no memory, and one more has
// no processors.
func eight() map[string]string {
	f := map[string]string{cpus + "/online": "0-63", cpus + "/present": "0-63", nodes + "/online": "0-8", nodes + "/has_memory": "0-2,4-8"}
	for n := range 9 {
		if n < 8 {
			f[fmt.Sprintf("%s/node%d/cpulist", nodes, n)] = fmt.Sprintf("%d-%d", 8*n, 8*n+7)
		}
		line := ""
		for other := range 9 {
			switch {
			case other == n:
				line += " 10"
			case other == 8 || n == 8:
				line += " 28"
			case other/2 == n/2:
				line += " 12"
			default:
				line += " 32"
			}
		}
		f[fmt.Sprintf("%s/node%d/distance", nodes, n)] = line
		f[fmt.Sprintf("%s/node%d/meminfo", nodes, n)] = fmt.Sprintf("Node %d MemTotal: %d kB\nNode %d MemFree: 1 kB", n, 1<<25, n)
	}
	return f
}

// flat are n cores of one thread on a machine that says nothing else.
func flat(n int) map[string]string {
	return map[string]string{cpus + "/online": fmt.Sprintf("0-%d", n-1), cpus + "/present": fmt.Sprintf("0-%d", n-1)}
}

func TestMachines(t *testing.T) {
	evens := []int{}
	for i := 0; i < 128; i += 2 {
		evens = append(evens, i)
	}
	for name, c := range map[string]struct {
		files                               map[string]string
		allowed                             []int
		cpus, offline, cores, threads, node int
		quota                               float64
	}{
		"nothing said":                  {files: nil, threads: 1},
		"two cores":                     {files: flat(2), cpus: 2, cores: 2, threads: 2, node: 1},
		"64 cores of 2 threads":         {files: server(), cpus: 128, cores: 64, threads: 64, node: 2},
		"allowed on even processors":    {files: server(), allowed: evens, cpus: 64, offline: 64, cores: 32, threads: 32, node: 2},
		"allowed on one core's threads": {files: server(), allowed: []int{5, 69}, cpus: 2, offline: 126, cores: 1, threads: 1, node: 1},
		"second threads only":           {files: server(), allowed: []int{96, 97, 98}, cpus: 3, offline: 125, cores: 3, threads: 3, node: 1},
		"two offline":                   {files: with(flat(8), cpus+"/online", "0-2,4-6"), cpus: 6, offline: 2, cores: 6, threads: 6, node: 1},
		"hybrid":                        {files: hybrid(), cpus: 8, cores: 6, threads: 6, node: 1},
		"a damaged list":                {files: map[string]string{cpus + "/online": "0-x"}, threads: 1},
		"an endless list":               {files: map[string]string{cpus + "/online": "0-99999999999"}, threads: 1},
		"quota of 1.5": {files: with(flat(8), "proc/self/cgroup", "0::/box/job", "sys/fs/cgroup/box/cpu.max", "150000 100000",
			"sys/fs/cgroup/box/job/cpu.max", "max 100000"), cpus: 8, cores: 8, threads: 2, node: 1, quota: 1.5},
		"quota of a half": {files: with(flat(8), "proc/self/cgroup", "0::/", "sys/fs/cgroup/cpu.max", "50000 100000"),
			cpus: 8, cores: 8, threads: 1, node: 1, quota: 0.5},
		"quota above the cores": {files: with(flat(2), "proc/self/cgroup", "0::/", "sys/fs/cgroup/cpu.max", "800000 100000"),
			cpus: 2, cores: 2, threads: 2, node: 1, quota: 8},
		"version 1": {files: with(flat(8), "proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/box",
			"sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "300000", "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000"),
			cpus: 8, cores: 8, threads: 3, node: 1, quota: 3},
		"version 1 without a limit": {files: with(flat(8), "proc/self/cgroup", "4:cpu:/",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
			cpus: 8, cores: 8, threads: 8, node: 1},
		"a group's processors, version 2": {files: with(server(), "proc/self/cgroup", "0::/box/job", "sys/fs/cgroup/box/cpuset.cpus.effective", "0-7,32-39"),
			allowed: evens, cpus: 8, offline: 120, cores: 8, threads: 8, node: 2},
		"a group's processors, version 1": {files: with(server(), "proc/self/cgroup", "3:cpuset:/docker/x", "sys/fs/cgroup/cpuset/cpuset.effective_cpus", "40-43,104-107"),
			cpus: 8, offline: 120, cores: 4, threads: 4, node: 1},
		"8 nodes":            {files: eight(), cpus: 64, cores: 64, threads: 64, node: 8},
		"a node is offline":  {files: with(eight(), cpus+"/online", "0-7,16-63", nodes+"/online", "0,2-7"), cpus: 56, offline: 8, cores: 56, threads: 56, node: 7},
		"half a core sleeps": {files: with(server(), cpus+"/online", "0-64"), cpus: 65, offline: 63, cores: 64, threads: 64, node: 2},
		"a period of nothing": {files: with(flat(2), "proc/self/cgroup", "0::/", "sys/fs/cgroup/cpu.max", "5 0"),
			cpus: 2, cores: 2, threads: 2, node: 1},
	} {
		m := Read(files(c.files), c.allowed)
		got := []any{len(m.CPUs), m.Offline, m.Cores(), m.Threads(), len(m.Nodes()), m.Quota}
		want := []any{c.cpus, c.offline, c.cores, c.threads, c.node, c.quota}
		if !slices.Equal(got, want) {
			t.Errorf("%s: cpus, unavailable, cores, threads, nodes, quota are %v, want %v", name, got, want)
		}
	}
}

func ids(places []CPU) (out []int) {
	for _, c := range places {
		out = append(out, c.ID)
	}
	return out
}

func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		threads int
		want    []int
	}{
		"one of a server":                {server(), 1, []int{0}},
		"four from both nodes":           {server(), 4, []int{0, 1, 32, 33}},
		"an odd number":                  {server(), 3, []int{0, 1, 32}},
		"more than cores":                {with(flat(2)), 5, []int{0, 1, 0, 1, 0}},
		"fast cores first":               {hybrid(), 3, []int{0, 2, 4}},
		"hybrid, one thread a core":      {hybrid(), 6, []int{0, 2, 4, 5, 6, 7}},
		"hybrid, then second threads":    {hybrid(), 8, []int{0, 2, 4, 5, 6, 7, 1, 3}},
		"one on each of eight nodes":     {eight(), 8, []int{0, 8, 16, 24, 32, 40, 48, 56}},
		"none where nothing can be said": {nil, 2, nil},
	} {
		m := Read(files(c.files), nil)
		if got := ids(m.Places(c.threads)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	m := Read(files(server()), nil)
	all := m.Places(64)
	if got := ids(all); len(got) != 64 || got[0] != 0 || got[31] != 31 || got[32] != 32 || got[63] != 63 {
		t.Errorf("64 threads are on %v", got)
	}
	if !slices.IsSortedFunc(all, func(a, b CPU) int { return a.Node - b.Node }) {
		t.Error("places are not in order of node")
	}
}

func TestNear(t *testing.T) {
	damaged := with(eight(), nodes+"/node2/distance", "10 x", nodes+"/node5/distance", "10 20")
	for name, c := range map[string]struct {
		files      map[string]string
		node, home int
		want       []int
	}{
		"nothing said":                {nil, 0, 0, []int{0}},
		"one node":                    {flat(4), 0, 0, []int{0}},
		"two without distances":       {server(), 1, 1, []int{1, 0}},
		"the neighbour, then in turn": {eight(), 4, 4, []int{4, 5, 8, 0, 1, 2, 3, 6, 7}},
		"without memory":              {eight(), 3, 2, []int{3, 2, 8, 0, 1, 4, 5, 6, 7}},
		"a damaged distance":          {damaged, 2, 2, []int{2, 0, 1, 3, 4, 5, 6, 7, 8}},
		"too few distances":           {damaged, 5, 5, []int{5, 0, 1, 2, 3, 4, 6, 7, 8}},
	} {
		m := Read(files(c.files), nil)
		if got := m.Near(c.node); !slices.Equal(got, c.want) {
			t.Errorf("%s: near node %d are %v, want %v", name, c.node, got, c.want)
		}
		if got := m.Home(c.node); got != c.home {
			t.Errorf("%s: node %d's memory is of node %d, want %d", name, c.node, got, c.home)
		}
	}
	m := Read(files(eight()), nil)
	if n := m.Memory; len(n) != 9 || n[2].Bytes != 32<<30 || n[3].Memory || !n[8].Memory {
		t.Errorf("nodes %+v", n)
	}
}

func TestLayout(t *testing.T) {
	one := Read(files(flat(4)), nil)
	two, many := Read(files(server()), nil), Read(files(eight()), nil)
	if one.Layout(4) != nil || two.Layout(1) != nil {
		t.Error("threads of one node are placed")
	}
	var none *Layout
	if got := none.Helped(3, 4); !slices.Equal(got, []Span{{0, 4}}) || none.Keep(3) != nil {
		t.Errorf("without a layout thread 3 of 4 helps %v", got)
	}
	l := two.Layout(64)
	if !slices.Equal(l.Homes, append(slices.Repeat([]int{0}, 32), slices.Repeat([]int{1}, 32)...)) {
		t.Errorf("homes of two nodes of 32: %v", l.Homes)
	}
	if keep := l.Keep(40); len(keep) != 64 || keep[0] != 32 || keep[63] != 127 {
		t.Errorf("thread 40 keeps to %v", keep)
	}
	if got := l.Helped(40, 64); !slices.Equal(got, []Span{{32, 64}, {0, 32}}) {
		t.Errorf("thread 40 helps %v", got)
	}
	l = many.Layout(16)
	if want := []int{0, 0, 1, 1, 2, 2, 2, 2, 4, 4, 5, 5, 6, 6, 7, 7}; !slices.Equal(l.Homes, want) {
		t.Errorf("homes of eight nodes, of which 3 has no memory: %v, want %v", l.Homes, want)
	}
	if got := l.Helped(8, 16); !slices.Equal(got, []Span{{8, 10}, {10, 12}, {0, 2}, {2, 4}, {4, 6}, {6, 8}, {12, 14}, {14, 16}}) {
		t.Errorf("thread 8 of node 4 helps %v", got)
	}
	if keep := two.Layout(8).Keep(0); len(keep) != 64 || keep[0] != 0 || keep[63] != 95 {
		t.Errorf("the first of few threads keeps to %v: others of the machine may be busy on some", keep)
	}
}

func TestHere(t *testing.T) {
	m := Here()
	if len(m.CPUs) == 0 || m.Cores() < 1 || m.Threads() < 1 || m.Threads() > len(m.CPUs) || len(m.Nodes()) < 1 || len(m.Memory) < 1 {
		t.Errorf("this machine: %+v", m)
	}
	if len(m.CPUs) > runtime.NumCPU() {
		t.Errorf("%d processors, of which Go sees %d", len(m.CPUs), runtime.NumCPU())
	}
}

func TestPin(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	m := Here()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends here
		err := Pin([]int{m.CPUs[0].ID})
		if now := affinity(); err == nil && !slices.Equal(now, []int{m.CPUs[0].ID}) {
			err = fmt.Errorf("allowed on %v", now)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func FuzzList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "3-1", "-1", "1-2-3", "0-65535", "0-65536", " 1 , 2 "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l := list(s)
		for i, v := range l {
			if v < 0 || v >= maxCPUs || i > 0 && v <= l[i-1] {
				t.Fatalf("list(%q) = %v", s, l)
			}
		}
	})
}
