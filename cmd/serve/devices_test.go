package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/meta"
)

func TestDevices(t *testing.T) {
	var m machine
	parse(t, &m, "devices", "--json")
	if m.Threads < 1 || m.CPUs < 1 || m.Cores < 1 || m.Cores > m.CPUs || len(m.Nodes) < 1 || m.Kernels[len(m.Kernels)-1] != "go" || m.Rates != nil {
		t.Errorf("%+v", m)
	}
	if len(m.Devices) != 2 || m.Devices[0].Device != "cpu" || m.Devices[1].Device != "disk" {
		t.Errorf("devices: %+v", m.Devices)
	}
	formats, attention := map[string]bool{}, 0
	for _, r := range m.KernelTable {
		if formats[r.Format] = true; r.Operation == "attention" {
			attention++
		}
		if r.Kernel == "" || r.From < 1 || r.To != 0 && r.To < r.From {
			t.Errorf("row of the kernel table: %+v", r)
		}
	}
	if len(formats) != len(meta.QuantFormats())+4 || attention == 0 {
		t.Errorf("the kernel table has formats %v and %d rows of attention", formats, attention)
	}
	for _, variant := range m.Kernels {
		text, _ := command(t, 0, "devices", "--cpu", variant)
		if !strings.Contains(text, "kernels of "+variant+" by tokens") || !strings.Contains(text, "gemm.SumPanels") || !strings.Contains(text, "attention of "+variant+" by tokens of a sequence") {
			t.Errorf("no kernels of %s in:\n%s", variant, text)
		}
	}
	text, _ := command(t, 0, "devices")
	for _, want := range []string{"cpu", "kernels", "gpu", "none", "disk"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

// TestDevicesPanickedForAFullGPU: a GPU whose memory other processes have is listed.
func TestDevicesPanickedForAFullGPU(t *testing.T) {
	var m machine
	m.addGPUs([]dispatch.GPU{{Name: "full", MemoryBytes: 1 << 30, Capability: "9.0"}}, "")
	var out strings.Builder
	m.printGPUs(&out)
	if want := "gpu 0\tfull\t1.00 GiB, 0 B free, compute capability 9.0\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestKernelsAreGrouped: formats with the same kernels share their lines, and so do roles and
// precisions. Ranges of tokens that the table has apart stand together.
func TestKernelsAreGrouped(t *testing.T) {
	row := func(format, precision, role string, from, to int, kernel string) cpu.KernelRow {
		return cpu.KernelRow{Variant: "v", Operation: "linear", Format: format, Precision: precision, Role: role, From: from, To: to, Kernel: kernel}
	}
	var table []cpu.KernelRow
	for _, format := range []string{"a", "b"} {
		for _, precision := range []string{"auto", "high"} {
			table = append(table, row(format, precision, "generated", 1, 4, "few"), row(format, precision, "prompt", 1, 4, "few"),
				row(format, precision, "generated", 5, 0, "many"), row(format, precision, "prompt", 5, 0, "many"))
		}
	}
	table = append(table, row("c", "auto", "generated", 1, 0, "fast"), row("c", "high", "generated", 1, 0, "exact"))
	var out strings.Builder
	printKernels(&out, table, "v")
	want := `
kernels of v by tokens in a pass, for weights in
  a, b
    generated, prompt            1-4 few; 5+ many
  c
    auto  generated                    1+ fast
    high  generated                    1+ exact
`
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("got\n%s\nwant at its start\n%s", &out, want)
	}
}

// TestDevicesShowsNodes: memory nodes are shown where there are several.
func TestDevicesShowsNodes(t *testing.T) {
	big := int64(64 << 30)
	m := machine{CPUs: 64, Cores: 32, Threads: 32, Nodes: []nodeInfo{{ID: 0, CPUs: 64, Bytes: &big}, {ID: 2}}}
	var out strings.Builder
	if err := m.print(cmdline.Output{Writer: &out}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node 0         64 processors, 64", "node 2         0 processors, no memory", "on 2 memory nodes"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

func TestDevicesProbe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	var m machine
	parse(t, &m, "devices", "--json", "--probe-file", file)
	if m.Rates == nil || len(m.Rates.Memory) == 0 || m.Rates.Disk == nil || m.Rates.Disk.File != file {
		t.Errorf("%+v", m.Rates)
	}
	if text, _ := command(t, 0, "devices", "--probe"); !strings.Contains(text, "GB/s") || !strings.Contains(text, "GFLOPS") {
		t.Errorf("no rates in:\n%s", text)
	}
	if _, errs := command(t, 1, "devices", "--probe-file", file+".gone"); !strings.Contains(errs, ".gone") {
		t.Errorf("a missing file: %s", errs)
	}
}

// TestDecodeOnAMDIsShownByDevices: --probe measures how weights are read, keeps it in the cache
// folder and shows it, and so does the next call without it.
func TestDecodeOnAMDIsShownByDevices(t *testing.T) {
	if set, err := kernels.Select(""); err != nil || set.Level == isa.Go {
		return // kernels in Go have one pattern
	}
	before := fetch.Current()
	defer fetch.Use(before)
	measured := func(m machine, r fetch.Role) bool { // near prefetch, with the best number of rows only
		n := 0
		for _, rate := range m.Fetch.Rates[r.String()] {
			if !rate.Pattern.Near {
				n++
			}
		}
		return n == 6 // three numbers of rows, with prefetch and without
	}
	dir := t.TempDir()
	var first, second, none machine
	parse(t, &none, "devices", "--json", "--cache-dir", dir)
	if none.Fetch.Measured || none.Fetch.Plan != fetch.Default(none.Fetch.Vendor) || none.Fetch.Processor == "" {
		t.Errorf("before a measurement: %+v", none.Fetch)
	}
	parse(t, &first, "devices", "--json", "--probe", "--cache-dir", dir)
	if !first.Fetch.Measured || !measured(first, fetch.Floats) || !measured(first, fetch.Q8) {
		t.Errorf("after a measurement: %+v", first.Fetch)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "fetch-*.json")); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v", files, err)
	}
	parse(t, &second, "devices", "--json", "--cache-dir", dir)
	if !second.Fetch.Measured || second.Fetch.Plan != first.Fetch.Plan {
		t.Errorf("the second call has the plan %v, the first %v", second.Fetch.Plan, first.Fetch.Plan)
	}
	if text, _ := command(t, 0, "devices", "--cache-dir", dir); !strings.Contains(text, "reads of q8_0 weights for one token") || !strings.Contains(text, "processor") {
		t.Errorf("no reads in:\n%s", text)
	}
	if text, _ := command(t, 0, "devices", "--cache-dir", "none"); !strings.Contains(text, "default; --probe measures") {
		t.Errorf("no default in:\n%s", text)
	}
}
