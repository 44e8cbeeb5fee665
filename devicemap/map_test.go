package devicemap

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

func TestMapLookup(t *testing.T) {
	m := NewMap(
		Entry{"model", GPU(0)},
		Entry{"model.layers[0:8]", CPU},
		Entry{"model.layers[2:4]", Disk},
		Entry{"model.layers.3", GPU(1)},
		Entry{"model.layers.1.mlp.experts[0:2]", Disk},
		Entry{"model.layers.1.mlp.experts.0", GPU(2)},
		Entry{"h[0:1]", CPU},
	)
	for path, want := range map[string]Device{
		"model":                              "0",
		"model.norm.weight":                  "0",
		"model.layers":                       "0",
		"model.layers.0":                     CPU,
		"model.layers.0.attn":                CPU,
		"model.layers.7.x":                   CPU,
		"model.layers.8":                     "0",
		"model.layers.2":                     Disk,
		"model.layers.3.x":                   "1",
		"model.layers.1.mlp.experts":         CPU,
		"model.layers.1.mlp.experts.0":       "2",
		"model.layers.1.mlp.experts.1":       Disk,
		"model.layers.1.mlp.experts.2":       CPU,
		"model.layers.1.mlp.experts.gate_up": CPU,
		"model.layers.01":                    "0",
		"h.0.x":                              CPU,
		"h.1":                                "",
		"models":                             "",
		"":                                   "",
	} {
		if got, ok := m.Device(path); got != want || ok != (want != "") {
			t.Errorf("%q: got %q %v want %q", path, got, ok, want)
		}
	}
	if got := m.Devices(); !slices.Equal(got, []Device{"0", "1", "2", CPU, Disk}) {
		t.Errorf("devices: %v", got)
	}
	m.Set("model", Disk)
	if d, _ := m.Get("model"); d != Disk || m.Entries()[0].Path != "model" || m.Len() != 7 {
		t.Errorf("set again: %v", m)
	}
}

func TestMapJSON(t *testing.T) {
	m := NewMap(Entry{"b", GPU(10)}, Entry{"a", CPU}, Entry{"x.experts[0:2]", Disk})
	pairs, err := json.Marshal(m)
	if want := `[["b",10],["a","cpu"],["x.experts[0:2]","disk"]]`; err != nil || string(pairs) != want {
		t.Errorf("pairs: %s %v", pairs, err)
	}
	object, err := json.Marshal(JSONObject{m})
	if want := `{"b":10,"a":"cpu","x.experts[0:2]":"disk"}`; err != nil || string(object) != want {
		t.Errorf("object: %s %v", object, err)
	}
	for _, form := range [][]byte{pairs, object} {
		var got Map
		if err := json.Unmarshal(form, &got); err != nil || !slices.Equal(got.Entries(), m.Entries()) {
			t.Errorf("%s: %v %v", form, got, err)
		}
	}
	var got Map
	for _, bad := range []string{`1`, `"a"`, `null`, `[["a"]]`, `[["a",0,0]]`, `{"a":-1}`, `{"a":null}`, `{"a":1.5}`, `{"a[":0}`, `[["a",0],["a",1]]`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s: read as %v", bad, got)
		}
	}
	for text, want := range map[string]Device{`"cuda:3"`: "3", `"0"`: "0", `7`: "7", `" CPU "`: CPU} {
		var d Device
		if err := json.Unmarshal([]byte(text), &d); err != nil || d != want {
			t.Errorf("%s: %q %v", text, d, err)
		}
	}
}

// TestClean: Clean keeps what Accelerate's grouping overwrites.
func TestClean(t *testing.T) {
	for _, c := range []struct{ in, clean, accelerate string }{
		{"a=cpu,a.x=0,a.y=0", "a=cpu,a.x=0,a.y=0", "a=0"},
		{"a.x=0,a.y=0,b=cpu", "a=0,b=cpu", "a=0,b=cpu"},
		{"a=0,a.x=0,a.y=0,b=cpu", "a=0,b=cpu", "a=0,b=cpu"},
		{"a[0:2]=cpu,a.2=cpu,b=0", "a=cpu,b=0", "a[0:2]=cpu,a.2=cpu,b=0"},
		{"a[0:2]=cpu,a.1.x=0,a.1.y=0", "a[0:2]=cpu,a.1.x=0,a.1.y=0", "a[0:2]=cpu,a=0"},
	} {
		p, err := ParsePolicy(c.in)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Pins.Clean().String(); got != c.clean {
			t.Errorf("%s: clean %s want %s", c.in, got, c.clean)
		}
		if got := CleanDeviceMap(p.Pins).String(); got != c.accelerate {
			t.Errorf("%s: CleanDeviceMap %s want %s", c.in, got, c.accelerate)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 10239: "10.0 KiB",
		1 << 20: "1.00 MiB", 1<<30 - 1: "1.00 GiB", 100 << 30: "100 GiB", 3 << 50: "3072 TiB", -2048: "-2.00 KiB"} {
		if got := FormatSize(bytes); got != want {
			t.Errorf("%d: %s want %s", bytes, got, want)
		}
	}
}

func TestParseDevice(t *testing.T) {
	for text, want := range map[string]Device{"cpu": CPU, " DISK": Disk, "mps": MPS, "0": "0", "cuda:12": "12",
		"-1": "", "gpu": "", "": "", "cuda:": "", "01": "", "1.0": ""} {
		if got, err := ParseDevice(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
}

// TestTreeThatContainsItself: a tree made by hand may be endless.
func TestTreeThatContainsItself(t *testing.T) {
	m := &meta.Module{Class: "A"}
	m.Children = []*meta.Module{{Name: "a", SameAs: m}, {Name: "b", SameAs: m}}
	if _, err := InferAutoDeviceMap(m, Options{}); err == nil {
		t.Error("no error for an endless tree")
	}
	lost := &meta.Module{Params: []*meta.Param{{Name: "w", SameAs: &meta.Param{}}}}
	if _, err := Solve(&meta.Model{Root: lost}, nil, Policy{}); err == nil {
		t.Error("no error for a tie to a parameter outside of the tree")
	}
	if _, err := Solve(nil, nil, Policy{}); err == nil {
		t.Error("no error without a model")
	}
}

func TestBudgetErrors(t *testing.T) {
	model := &meta.Model{Root: &meta.Module{}}
	for what, budgets := range map[string][]Budget{
		"unknown device": {{Device: "tpu"}},
		"device twice":   {{Device: CPU}, {Device: CPU}},
		"negative":       {{Device: CPU, Limit: -1}},
	} {
		if plan, err := Solve(model, budgets, Policy{}); err == nil {
			t.Errorf("%s: %+v", what, plan)
		}
	}
	for what, p := range map[string]Policy{
		"unknown policy":      {Kind: "best"},
		"pins and balanced":   {Kind: Balanced, Pins: NewMap(Entry{"", CPU})},
		"unknown dtype":       {DType: "float5"},
		"dtype of Sequential": {Kind: Sequential, DType: "x"},
	} {
		if plan, err := Solve(model, nil, p); err == nil {
			t.Errorf("%s: %+v", what, plan)
		}
	}
	if _, err := InferAutoDeviceMap(model.Root, Options{SpecialDTypes: map[string]string{"a": "b"}}); err == nil {
		t.Error("no error for a special dtype that is none")
	}
}

// TestPlanJSON: the plan's fields have the names that clients read.
func TestPlanJSON(t *testing.T) {
	root := &meta.Module{Class: "M", Children: []*meta.Module{
		{Name: "a", Class: "Linear", Params: []*meta.Param{{Name: "weight", Shape: []int{10, 10}, DType: meta.BFloat16}}},
		{Name: "b", Class: "Linear", Params: []*meta.Param{{Name: "weight", Shape: []int{10, 10}, DType: meta.BFloat16}}}}}
	plan, err := Solve(&meta.Model{Root: root}, []Budget{{Device: CPU, Limit: 1000, KV: 50, Activations: 20}, {Device: GPU(0), Limit: 250}}, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(plan)
	want := `{"policy":"auto","device_map":[["a",0],["b","cpu"]],"devices":[` +
		`{"device":0,"limit_bytes":250,"weights_bytes":200,"kv_bytes":0,"activation_bytes":0,"staging_bytes":0},` +
		`{"device":"cpu","limit_bytes":1000,"weights_bytes":200,"kv_bytes":50,"activation_bytes":20,"staging_bytes":0},` +
		`{"device":"disk","limit_bytes":0,"weights_bytes":0,"kv_bytes":0,"activation_bytes":0,"staging_bytes":0}],` +
		`"least_bytes":270,"disk_bytes_per_token":0}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s %v\nwant %s", got, err, want)
	}
	var back Plan
	if err := json.Unmarshal(got, &back); err != nil || back.Explain() != plan.Explain() {
		t.Errorf("back from JSON: %v\n%s\n%s", err, back.Explain(), plan.Explain())
	}
}

// TestRenderColor: with color every device has its own, and an error of the writer is returned.
func TestRenderColor(t *testing.T) {
	m := NewMap(Entry{"a.0", GPU(0)}, Entry{"a.1", GPU(1)}, Entry{"a.2", CPU}, Entry{"b", Disk}, Entry{"c", MPS})
	var b strings.Builder
	if err := (Plan{Map: m, Warnings: []string{"w"}}).Render(&b, true, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[32m█\x1b[0m", "\x1b[36m█\x1b[0m", "\x1b[34m▓\x1b[0m", "\x1b[33m░\x1b[0m", "a.0-2"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %q", want, b.String())
		}
	}
	r, w := io.Pipe()
	r.Close()
	if err := (Plan{Map: m}).Render(w, false, 80); err == nil {
		t.Error("no error from a closed writer")
	}
}

// TestCheckPaths: a wrong path is named, with what may have been meant.
func TestCheckPaths(t *testing.T) {
	experts := &meta.Module{Name: "experts", Params: []*meta.Param{{Name: "up", Shape: []int{4, 2, 2}}}}
	root := &meta.Module{Children: []*meta.Module{{Name: "layers", Children: []*meta.Module{{Name: "0"}, {Name: "1", Children: []*meta.Module{experts}}}}}}
	for text, near := range map[string][]string{
		"layers.1=cpu": nil, "layers[0:2]=cpu": nil, "layers.1.experts.3=cpu": nil, "layers.1.experts[0:4]=cpu": nil,
		"layer.1=cpu": {"layers.1", "layers", "layers.0"}, "experts=cpu": {"layers.1.experts"}, "layers.1.experts.4=cpu": {}, "layers[1:3]=cpu": {},
	} {
		p, err := ParsePolicy(text)
		if err != nil {
			t.Fatal(err)
		}
		var unknown *UnknownPathError
		switch err := CheckPaths(root, p.Pins); {
		case near == nil && err != nil:
			t.Errorf("%s: %v", text, err)
		case near != nil && (!errors.As(err, &unknown) || unknown.Why == "" && !slices.Equal(unknown.Near, near)):
			t.Errorf("%s: %v want %v", text, err, near)
		}
	}
	covered := NewMap(Entry{"layers.1.experts[0:3]", CPU}, Entry{"layers.1.experts.3", Disk})
	if unknown, err := CheckDeviceMap(root, covered); err != nil {
		t.Errorf("experts one by one: %v %v", unknown, err)
	}
	if _, err := CheckDeviceMap(root, NewMap(Entry{"layers.1.experts[0:3]", CPU})); err == nil || err.Error() != "devicemap: the map gives no device for layers.1.experts.up" {
		t.Errorf("an expert without a device: %v", err)
	}
}
