package devicemap

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

const goldenFolder = "infer/devicemap"

// goldenDevice is a device in a fixture: a number is a GPU, a text is its name. A text
// of digits is no GPU to the reference, so it gets a name that no device has.
type goldenDevice Device

func (d *goldenDevice) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		if _, ok := Device(text).GPU(); ok {
			text = strconv.Quote(text)
		}
		*d = goldenDevice(text)
		return nil
	}
	var number float64
	if err := json.Unmarshal(b, &number); err != nil {
		return err
	}
	*d = goldenDevice(GPU(int(number)))
	return nil
}

// goldenAmount is a number of bytes or a text with a unit.
type goldenAmount float64

func (a *goldenAmount) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		size, err := ParseSize(text)
		*a = goldenAmount(size)
		return err
	}
	return json.Unmarshal(b, (*float64)(a))
}

// goldenMemory is a list of [device, amount].
type goldenMemory []DeviceMemory

func (m *goldenMemory) UnmarshalJSON(b []byte) error {
	var rows []json.RawMessage
	if err := json.Unmarshal(b, &rows); err != nil {
		return err
	}
	*m = goldenMemory{}
	for _, row := range rows {
		var d goldenDevice
		var a goldenAmount
		if err := json.Unmarshal(row, &[]any{&d, &a}); err != nil {
			return err
		}
		*m = append(*m, DeviceMemory{Device: Device(d), Bytes: float64(a)})
	}
	return nil
}

// goldenMap is a list of [path, device], or an object.
type goldenMap struct{ Map }

func (m *goldenMap) UnmarshalJSON(b []byte) error {
	var rows []json.RawMessage
	if json.Unmarshal(b, &rows) == nil {
		for _, row := range rows {
			var path string
			var d goldenDevice
			if err := json.Unmarshal(row, &[]any{&path, &d}); err != nil {
				return err
			}
			m.Set(path, Device(d))
		}
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.Token()
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		var d goldenDevice
		if err := dec.Decode(&d); err != nil {
			return err
		}
		m.Set(key.(string), Device(d))
	}
	return nil
}

type goldenCase struct {
	Name, Tree, Mode   string
	MaxMemory          goldenMemory `json:"max_memory"`
	NoSplit            []string     `json:"no_split"`
	DType              string
	Special            [][2]string `json:"special_dtypes_rule"`
	OffloadBuffers     bool        `json:"offload_buffers"`
	FallbackAllocation bool        `json:"fallback_allocation"`
	Expected           struct {
		Raw      *goldenMap    `json:"device_map_raw"`
		Map      *goldenMap    `json:"device_map"`
		Balanced *goldenMemory `json:"balanced_memory"`
		Warnings []string
		Minimum  goldenMemory `json:"minimum_memory_info"`
		Fails    bool         `json:"reference_fails"`
	}
}

// goldenTrees reads each tree once.
type goldenTrees map[string]*meta.Module

func (g goldenTrees) read(t testing.TB, path string) *meta.Module {
	t.Helper()
	if root := g[path]; root != nil {
		return root
	}
	data, err := golden.Read(golden.Path(t, goldenFolder, strings.TrimSuffix(path, ".gz")))
	if err != nil {
		t.Fatal(err)
	}
	root, err := meta.ReadTree(data)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	g[path] = root
	return root
}

// specialDTypes applies a fixture's rule to the parameters of a tree: the first
// expression found in the name decides.
func specialDTypes(t testing.TB, root *meta.Module, rule [][2]string) map[string]string {
	if rule == nil {
		return nil
	}
	special := map[string]string{}
	for path := range root.AllParams() {
		for _, r := range rule {
			if regexp.MustCompile(r[0]).MatchString(path) {
				special[path] = r[1]
				break
			}
		}
	}
	return special
}

func TestGoldenDeviceMap(t *testing.T) {
	trees := goldenTrees{}
	count := 0
	for _, file := range golden.Glob(t, goldenFolder+"/cases_*.json") {
		var cases struct{ Cases []goldenCase }
		golden.JSON(t, file, &cases)
		for _, c := range cases.Cases {
			count++
			t.Run(c.Name, func(t *testing.T) { c.run(t, trees.read(t, c.Tree)) })
		}
	}
	golden.Count(t, goldenFolder, count)
}

func (c *goldenCase) run(t *testing.T, root *meta.Module) {
	o := Options{MaxMemory: c.MaxMemory, NoSplitModuleClasses: c.NoSplit, DType: c.DType,
		SpecialDTypes: specialDTypes(t, root, c.Special), OffloadBuffers: c.OffloadBuffers,
		FallbackAllocation: c.FallbackAllocation}
	if c.Mode != "sequential" {
		var err error
		o.MaxMemory, err = BalancedMemory(root, o, c.Mode == "balanced_low_0")
		if err != nil {
			t.Fatal(err)
		}
		if c.Expected.Balanced != nil && !slices.Equal(o.MaxMemory, *c.Expected.Balanced) {
			t.Errorf("balanced memory\n got %v\nwant %v", o.MaxMemory, *c.Expected.Balanced)
		}
	}
	got, err := InferAutoDeviceMap(root, o)
	if err != nil {
		t.Fatal(err)
	}
	if c.Expected.Fails {
		if missing := uncoveredParams(root, got.Raw); len(missing) > 0 {
			t.Errorf("the own answer leaves out %v", missing)
		}
		return
	}
	if got.Own {
		t.Error("took the way out for input on which the reference fails")
	}
	if want := c.Expected.Raw; want != nil && !slices.Equal(got.Raw.Entries(), want.Entries()) {
		t.Errorf("raw map\n got %v\nwant %v", got.Raw, want)
	}
	if want := c.Expected.Map; want != nil {
		sameEntries(t, got.Map, want.Map)
	}
	want := slices.Clone(c.Expected.Minimum)
	for i := range want { // a GPU's number may be text here
		want[i].Device = Device(strings.Trim(string(want[i].Device), `"`))
	}
	if !slices.Equal(got.Minimum, want) {
		t.Errorf("minimum memory\n got %v\nwant %v", got.Minimum, want)
	}
	offGPU := 0.0
	for _, w := range c.Expected.Warnings {
		offGPU, err = strconv.ParseFloat(regexp.MustCompile(`\d[\d.]*`).FindString(w), 64)
		if err != nil {
			t.Fatal(err)
		}
	}
	if got.BuffersOffGPU != offGPU {
		t.Errorf("buffers without a GPU: got %v want %v", got.BuffersOffGPU, offGPU)
	}
}

func uncoveredParams(root *meta.Module, m Map) (missing []string) {
	for path := range root.AllParams() {
		if _, ok := m.Device(path); !ok {
			missing = append(missing, path)
		}
	}
	return missing
}

func sameEntries(t *testing.T, got, want Map) {
	t.Helper()
	sorted := func(m Map) []Entry {
		return slices.SortedFunc(slices.Values(m.Entries()), func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	}
	if g, w := sorted(got), sorted(want); !slices.Equal(g, w) {
		t.Errorf("map\n got %v\nwant %v", g, w)
	}
}

type goldenStatics struct {
	Name, Tree   string
	DType        string
	Special      [][2]string        `json:"special_dtypes_rule"`
	NoSplit      []string           `json:"no_split"`
	ModuleSizes  map[string]float64 `json:"module_sizes"`
	Total        float64
	TotalBuffers float64 `json:"total_buffers"`
	Tied         [][]string
	Largest      *struct{ Size float64 } `json:"largest_layer"`
	Parameters   *int64                  `json:"num_parameters"`
	Statics      []goldenStatics
}

func TestGoldenDeviceMapStatics(t *testing.T) {
	trees := goldenTrees{}
	count := 0
	for _, file := range golden.Glob(t, goldenFolder+"/cases_*.json") {
		var cases struct{ Statics []goldenStatics }
		golden.JSON(t, file, &cases)
		for _, s := range cases.Statics {
			list := s.Statics
			if list == nil {
				list = []goldenStatics{s}
			}
			for i, one := range list {
				one.NoSplit = s.NoSplit
				count++
				t.Run(fmt.Sprintf("%s/%d-%s", s.Name, i, one.DType), func(t *testing.T) { one.run(t, trees.read(t, s.Tree)) })
			}
		}
	}
	golden.Count(t, goldenFolder+"/statics", count)
}

func (s *goldenStatics) run(t *testing.T, root *meta.Module) {
	sizes, err := ComputeModuleSizes(root, s.DType, specialDTypes(t, root, s.Special))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range s.ModuleSizes {
		if got, ok := sizes.Of(path); !ok || got != want {
			t.Errorf("size of %q: got %v %v want %v", path, got, ok, want)
		}
	}
	if got := sizes.Total(); got != s.Total {
		t.Errorf("total: got %v want %v", got, s.Total)
	}
	if got := sizes.Buffers(); got != s.TotalBuffers {
		t.Errorf("buffers: got %v want %v", got, s.TotalBuffers)
	}
	if got, _ := sizes.LargestLayer(s.NoSplit); s.Largest != nil && got != s.Largest.Size {
		t.Errorf("largest layer: got %v want %v", got, s.Largest.Size)
	}
	tied, err := FindTiedParameters(root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(tied, s.Tied, slices.Equal[[]string]) {
		t.Errorf("tied: got %v want %v", tied, s.Tied)
	}
}

// goldenAnswer is the result of one of the small functions.
type goldenAnswer struct {
	Value    json.RawMessage
	Error    string
	Message  string
	Warnings []string
}

// goldenPairs are rows of [input, answer].
type goldenPairs [][2]json.RawMessage

func (p goldenPairs) each(t *testing.T, do func(t *testing.T, input []byte, want goldenAnswer)) int {
	for _, row := range p {
		t.Run(string(row[0]), func(t *testing.T) {
			var want goldenAnswer
			if err := json.Unmarshal(row[1], &want); err != nil {
				t.Fatal(err)
			}
			do(t, row[0], want)
		})
	}
	return len(p)
}

func TestGoldenDeviceMapSmallFunctions(t *testing.T) {
	var f struct {
		Size  goldenPairs `json:"convert_file_size_to_int"`
		DType goldenPairs `json:"dtype_byte_size"`
		Clean goldenPairs `json:"clean_device_map"`
		Max   goldenPairs `json:"get_max_memory"`
		Check struct {
			Tree  json.RawMessage
			Cases goldenPairs
		} `json:"check_device_map"`
	}
	count := 0
	if golden.JSON(t, golden.Path(t, goldenFolder, "small_functions.json"), &f) {
		count += f.Size.each(t, checkSize) + f.DType.each(t, checkDType) + f.Clean.each(t, checkClean) + f.Max.each(t, checkMax)
		if len(f.Check.Tree) > 0 {
			root, err := meta.ReadTree(f.Check.Tree)
			if err != nil {
				t.Fatal(err)
			}
			count += f.Check.Cases.each(t, func(t *testing.T, input []byte, want goldenAnswer) { checkCheck(t, root, input, want) })
		}
	}
	golden.Count(t, goldenFolder+"/small_functions", count)
}

// sameAnswer compares a result with the wanted one, both as JSON values.
func sameAnswer(t *testing.T, got any, err error, want goldenAnswer) {
	t.Helper()
	if want.Error != "" || err != nil {
		if want.Error == "" || err == nil {
			t.Errorf("got %v, %v want %s %s", got, err, want.Value, want.Error)
		}
		return
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var g, w any
	if json.Unmarshal(b, &g) != nil || json.Unmarshal(want.Value, &w) != nil || fmt.Sprint(g) != fmt.Sprint(w) {
		t.Errorf("got %s want %s", b, want.Value)
	}
}

func checkSize(t *testing.T, input []byte, want goldenAnswer) {
	var text string
	if json.Unmarshal(input, &text) == nil {
		got, err := ParseSize(text)
		sameAnswer(t, got, err, want)
		return
	}
	// Numbers are bytes as they are, which is a matter of types here: only the sign
	// is left to check, by ParseMaxMemory.
	got, err := ParseMaxMemory("cpu=" + string(input))
	if err != nil {
		sameAnswer(t, nil, err, want)
		return
	}
	sameAnswer(t, got[0].Bytes, nil, want)
}

func checkDType(t *testing.T, input []byte, want goldenAnswer) {
	var name string
	if err := json.Unmarshal(input, &name); err != nil {
		t.Fatal(err)
	}
	got, err := DTypeByteSize(name)
	sameAnswer(t, got, err, want)
}

func checkClean(t *testing.T, input []byte, want goldenAnswer) {
	var in, out goldenMap
	if err := json.Unmarshal(input, &in); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want.Value, &out); err != nil {
		t.Fatal(err)
	}
	sameEntries(t, CleanDeviceMap(in.Map), out.Map)
}

func checkMax(t *testing.T, input []byte, want goldenAnswer) {
	var in, out goldenMemory
	if err := json.Unmarshal(input, &in); err != nil {
		t.Fatal(err)
	}
	got, err := MaxMemory(in, []DeviceMemory{{Device: CPU, Bytes: 1}})
	if want.Error != "" || err != nil {
		sameAnswer(t, nil, err, want)
		return
	}
	if err := json.Unmarshal(want.Value, &out); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, out) {
		t.Errorf("got %v want %v", got, out)
	}
}

var quoted = regexp.MustCompile(`'([^']*)'`)

func checkCheck(t *testing.T, root *meta.Module, input []byte, want goldenAnswer) {
	var in goldenMap
	if err := json.Unmarshal(input, &in); err != nil {
		t.Fatal(err)
	}
	unknown, err := CheckDeviceMap(root, in.Map)
	var wantUnknown []string
	for _, w := range want.Warnings {
		for _, m := range quoted.FindAllStringSubmatch(w, -1) {
			wantUnknown = append(wantUnknown, m[1])
		}
	}
	if !slices.Equal(unknown, wantUnknown) {
		t.Errorf("unknown paths: got %v want %v", unknown, wantUnknown)
	}
	var got string
	if missing, ok := err.(*UncoveredError); ok {
		got = strings.Join(missing.Tensors, ", ")
	}
	if _, names, _ := strings.Cut(want.Message, "parameters: "); got != names {
		t.Errorf("uncovered: got %q want %q", got, names)
	}
}
