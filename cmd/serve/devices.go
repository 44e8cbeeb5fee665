package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/probe"
)

// devicesCmd is serve devices.
type devicesCmd struct {
	Probe     bool   `help:"Measure memory, arithmetic and the fastest way to read weights (0.8 s)."`
	ProbeFile string `help:"Also measure the disk, by reading this large file." placeholder:"FILE"`
	CacheDir  string `name:"cache-dir" help:"Keep measurements here (default: heft in the user cache)." placeholder:"DIR|none"`
	JSON      bool   `name:"json" help:"Print one JSON object."`
	CPU       string `name:"cpu" env:"HEFT_CPU" help:"Show the kernels of this variant (default: the best one)." placeholder:"amx|avx512bf16|avx512|avx2|go"`
}

// machine is the output of serve devices --json.
type machine struct {
	System  string          `json:"system"` // such as linux/amd64
	Devices []deviceInfo    `json:"devices"`
	NoGPU   string          `json:"no_gpu,omitempty"` // why no GPU is listed
	Memory  memoryInfo      `json:"memory"`
	CPUs    int             `json:"cpus"`    // on which the process may run
	Cores   int             `json:"cores"`   // physical ones among them
	Nodes   []nodeInfo      `json:"nodes"`   // of memory
	Quota   *float64        `json:"quota"`   // processors' time that the control group allows; null for no limit
	Threads int             `json:"threads"` // that compute by default
	Kernels []string        `json:"kernels"` // that this processor supports, best first
	Builds  map[string]bool `json:"builds"`  // what this binary was built with
	// KernelTable lists the kernel in use by variant, operation, format, precision, role and number
	// of tokens.
	KernelTable []cpu.KernelRow `json:"kernel_table"`

	variant string       // whose kernels are printed as text
	Rates   *probe.Rates `json:"rates,omitempty"`
	Fetch   *fetchInfo   `json:"fetch,omitempty"` // how weights are read
}

// deviceInfo is a device that device maps may name.
type deviceInfo struct {
	Device         devicemap.Device `json:"device"`
	AvailableBytes *int64           `json:"available_bytes"` // null: no limit, or unknown
	GPU            *gpuInfo         `json:"gpu,omitempty"`
}

// gpuInfo has the further properties of a GPU.
type gpuInfo struct {
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memory_bytes"`
	Capability  string `json:"capability"`
	Used        bool   `json:"used"`
	Reason      string `json:"reason,omitempty"` // why it is not used
}

// nodeInfo is a NUMA node: memory that is near to some processors. If there are several nodes,
// threads stay on theirs.
type nodeInfo struct {
	ID    int    `json:"id"`
	CPUs  int    `json:"cpus"` // on which the process may run
	Bytes *int64 `json:"memory_bytes"`
}

// memoryInfo is the host's memory in bytes. null means unknown, or no limit.
type memoryInfo struct {
	Total     *int64 `json:"total_bytes"`
	Available *int64 `json:"available_bytes"` // to this process
	Limit     *int64 `json:"limit_bytes"`     // of its control group
}

// Run describes the machine.
func (c *devicesCmd) Run(ctx context.Context, out cmdline.Output) error {
	h := dispatch.DescribeHost()
	m := machine{
		System: runtime.GOOS + "/" + runtime.GOARCH,
		Devices: []deviceInfo{
			{Device: devicemap.CPU, AvailableBytes: positive(h.AvailableBytes)}, {Device: devicemap.Disk}},
		Memory: memoryInfo{Total: positive(h.TotalBytes), Available: positive(h.AvailableBytes), Limit: positive(h.LimitBytes)},
		CPUs:   h.CPUs, Cores: h.Cores, Threads: h.Threads, Kernels: kernels.Names(), Builds: map[string]bool{"cuda": dispatch.GPUCode},
	}
	m.addGPUs(dispatch.GPUs())
	for _, n := range h.Nodes {
		m.Nodes = append(m.Nodes, nodeInfo{ID: n.ID, CPUs: n.CPUs, Bytes: positive(n.Bytes)})
	}
	if h.Quota > 0 {
		m.Quota = &h.Quota
	}
	var err error
	if c.Probe || c.ProbeFile != "" {
		o := probe.Options{MemoryBytes: h.AvailableBytes / 4}
		if c.ProbeFile != "" {
			o.Files = []string{c.ProbeFile}
		}
		if m.Rates, err = probe.Run(ctx, o); err != nil {
			return err
		}
	}
	if m.variant, err = c.variant(); err != nil {
		return err
	}
	if m.KernelTable, err = kernelTable(m.Kernels); err != nil {
		return err
	}
	if m.Fetch, err = c.fetch(ctx, m.variant, h.Threads); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, m)
	}
	return m.print(out)
}

// addGPUs inserts GPUs before the other devices, in the order in which maps fill them.
func (m *machine) addGPUs(gpus []dispatch.GPU, reason string) {
	var devices []deviceInfo
	for _, g := range gpus {
		devices = append(devices, deviceInfo{Device: devicemap.GPU(g.Number), AvailableBytes: positive(g.AvailableBytes),
			GPU: &gpuInfo{Name: g.Name, MemoryBytes: g.MemoryBytes, Capability: g.Capability, Used: g.Reason == "", Reason: g.Reason}})
	}
	m.Devices, m.NoGPU = append(devices, m.Devices...), reason
}

// printGPUs writes a line for each GPU, or why there is none.
func (m *machine) printGPUs(w io.Writer) {
	if m.NoGPU != "" {
		fmt.Fprintf(w, "gpu\tnone\t%s\n", m.NoGPU)
	}
	for _, d := range m.Devices {
		available := int64(0) // if others use the GPU's memory
		if d.AvailableBytes != nil {
			available = *d.AvailableBytes
		}
		switch g := d.GPU; {
		case g == nil:
		case g.Used:
			fmt.Fprintf(w, "gpu %s\t%s\t%s, %s free, compute capability %s\n", d.Device, g.Name, devicemap.FormatSize(g.MemoryBytes), devicemap.FormatSize(available), g.Capability)
		default:
			fmt.Fprintf(w, "gpu %s\t%s\tnot used: %s\n", d.Device, g.Name, g.Reason)
		}
	}
}

func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

// processors describes the processors of the threads: "16 cores of 32 processors on 2 memory
// nodes".
func (m *machine) processors() string {
	s := fmt.Sprintf("%d cores of %d processors", m.Cores, m.CPUs)
	if len(m.Nodes) > 1 {
		s += fmt.Sprintf(" on %d memory nodes", len(m.Nodes))
	}
	if m.Quota != nil {
		s += fmt.Sprintf(", with the time of %.3g", *m.Quota)
	}
	return s
}

func (m *machine) print(out cmdline.Output) error {
	size := func(n *int64, none string) string {
		if n == nil {
			return none
		}
		return devicemap.FormatSize(*n)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	m.printGPUs(w)
	fmt.Fprintf(w, "cpu\tmemory\t%s, %s available to this process\n", size(m.Memory.Total, "unknown"), size(m.Memory.Available, "unknown"))
	fmt.Fprintf(w, "\tcontrol group\t%s\n", size(m.Memory.Limit, "no limit"))
	fmt.Fprintf(w, "\tthreads\t%d on %s\n", m.Threads, m.processors())
	for _, n := range m.Nodes {
		if len(m.Nodes) > 1 {
			fmt.Fprintf(w, "\tnode %d\t%d processors, %s\n", n.ID, n.CPUs, size(n.Bytes, "no memory"))
		}
	}
	fmt.Fprintf(w, "\tkernels\t%s (%s)\n", strings.Join(m.Kernels, ", "), m.System)
	if m.Rates != nil {
		for _, r := range m.Rates.Memory {
			fmt.Fprintf(w, "\tmemory read\t%.1f GB/s with %s\n", r.BytesPerSecond/1e9, cmdline.Count(r.Threads, "thread"))
		}
		for _, r := range m.Rates.Compute {
			name := r.Weights + " weights"
			if r.Rounded {
				name = r.Weights + " prompts" // with --precision auto
			}
			fmt.Fprintf(w, "\t%s\t%.1f GFLOPS with %s, %s\n", name, r.OperationsPerSecond/1e9, cmdline.Count(r.Threads, "thread"), r.Variant)
		}
		for _, r := range m.Rates.Peaks {
			fmt.Fprintf(w, "\t%s at most\t%.1f GOPS with %s\n", r.Name, r.OperationsPerSecond/1e9, cmdline.Count(r.Threads, "thread"))
		}
	}
	m.Fetch.print(w)
	fmt.Fprintln(w, "disk\tweights\tstreamed from the checkpoint's own files")
	if m.Rates != nil && m.Rates.Disk != nil {
		how := "past the page cache"
		if !m.Rates.Disk.Direct {
			how = "through the page cache, as this file system allows no direct reads"
		}
		fmt.Fprintf(w, "\tread\t%.2f GB/s, %s\n", m.Rates.Disk.BytesPerSecond/1e9, how)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	printKernels(out, m.KernelTable, m.variant)
	return nil
}
