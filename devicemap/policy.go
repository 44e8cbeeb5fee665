package devicemap

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/spelling"
	"github.com/heftai/heft/meta"
)

// PolicyKind is a rule that decides where modules go.
type PolicyKind string

// The kinds of policy.
const (
	// Auto is Heft's own policy: the weights that tokens read most are placed on the fastest
	// devices.
	Auto PolicyKind = "auto"
	// Balanced, BalancedLow0 and Sequential are Accelerate's policies, with the same budgets.
	Balanced     PolicyKind = "balanced"
	BalancedLow0 PolicyKind = "balanced_low_0"
	Sequential   PolicyKind = "sequential"
	// Manual places everything as the user's map says.
	Manual PolicyKind = "manual"
)

// keywords are the kinds that users name.
var keywords = []PolicyKind{Auto, Balanced, BalancedLow0, Sequential}

// A Policy says how Solve places a model.
type Policy struct {
	Kind PolicyKind // "" is Auto
	// Pins are the modules that the user placed. Auto fits the rest around them. With Manual they
	// are the whole map. The other kinds reject them.
	Pins Map
	// SequenceKV is the size of one sequence's KV cache in bytes, which is the minimum that Solve
	// reserves.
	SequenceKV int64
	// UnitKV is the part of SequenceKV that belongs to the block at a path, in bytes. It is
	// placed on the block's accelerator. nil leaves all of it on the CPU.
	UnitKV map[string]int64
	// HostOnly are paths of modules that no accelerator can run. They are placed on the CPU and
	// the disk, even if pins name an accelerator.
	HostOnly map[string]bool
	// ExpertsApart allows routed experts of a block on other devices than the block. They stay on
	// the accelerator of their block if they fit there. An accelerator without room for a whole
	// stack holds some of its experts.
	ExpertsApart bool
	// DType is the type that floating-point weights are loaded as; "" keeps each tensor's own. It
	// only makes weights smaller, never larger.
	DType string
	// Loaded holds the sizes in bytes of parameters that are converted when they are loaded, if
	// their dtype and DType do not determine them.
	Loaded map[*meta.Param]int64
	// Streamed maps the parameters that are converted only if they stay in memory to their size on
	// the disk, in bytes. They stream as stored.
	Streamed map[*meta.Param]int64
	// Bands maps the matrices that stream in bands of rows to the size of their largest band in
	// bytes. Only a few bands of such a matrix are in memory at a time.
	Bands map[*meta.Param]int64
	// Tight makes the window for bands as small as possible, so that no band is read ahead.
	Tight bool
	// NoSplit are the classes of modules that are placed as a whole; nil means the model's.
	NoSplit []string
	// ExpertHits predicts the share of a token's routed experts that are in the cache. Its
	// argument is the share of all experts that fits into the cache. nil means no hits.
	ExpertHits func(share float64) float64
	// OffloadBuffers is an option of Accelerate's policies; see [Options].
	OffloadBuffers bool
}

// ParsePolicy parses a device map as users write it and returns its policy:
//
//	auto, balanced, balanced_low_0, sequential    a policy
//	cpu, disk, N                                  the whole model on one device
//	{"PATH": DEVICE, …} or [["PATH", DEVICE], …]  JSON: the whole map
//	PATH=DEVICE,PATH=DEVICE                       pins: auto fits the rest around them
//
// PATH is a module or a tensor of the model, or one of the forms that [Map] describes.
// ParsePolicy does not depend on a model: [Solve] checks that the paths exist and cover it.
func ParsePolicy(text string) (Policy, error) {
	p, err := parseMap(strings.TrimSpace(text))
	if err != nil {
		return Policy{}, fmt.Errorf("devicemap: %w", err)
	}
	return p, nil
}

func parseMap(text string) (Policy, error) {
	if text == "" {
		return Policy{}, fmt.Errorf("device map: got nothing, want %s", mapForms)
	}
	if slices.Contains(keywords, PolicyKind(text)) {
		return Policy{Kind: PolicyKind(text)}, nil
	}
	if text[0] == '{' || text[0] == '[' && !strings.Contains(text, "=") {
		return parseJSONMap([]byte(text))
	}
	if !strings.Contains(text, "=") {
		d, err := parseDevice(text)
		if err != nil {
			return Policy{}, fmt.Errorf("device map: got %q, want %s%s", text, mapForms, didYouMean(nearKeywords(text)))
		}
		return Policy{Kind: Manual, Pins: NewMap(Entry{"", d})}, nil
	}
	pins, err := parsePins(text)
	if err != nil {
		return Policy{}, err
	}
	return Policy{Kind: Auto, Pins: pins}, nil
}

const mapForms = "auto, balanced, balanced_low_0, sequential, cpu, disk, a GPU's number, PATH=DEVICE,… or JSON"

func nearKeywords(text string) []string {
	if len(text) <= len(CPU) {
		return nil
	}
	names := []string{string(CPU), string(Disk)}
	for _, k := range keywords {
		names = append(names, string(k))
	}
	return spelling.Nearest(strings.ToLower(text), names, 1)
}

func parseJSONMap(text []byte) (Policy, error) {
	var m Map
	var whole any // Unmarshal rejects text after a value
	err := json.Unmarshal(text, &whole)
	if err == nil {
		err = m.read(text)
	}
	if err != nil {
		return Policy{}, fmt.Errorf("device map: %w", err)
	}
	if m.Len() == 0 {
		return Policy{}, errors.New("device map: got no entry, want at least one")
	}
	return Policy{Kind: Manual, Pins: m}, nil
}

func parsePins(text string) (Map, error) {
	var pins Map
	for item := range strings.SplitSeq(text, ",") {
		path, name, ok := strings.Cut(item, "=")
		path = strings.TrimSpace(path)
		if !ok || path == "" {
			return Map{}, fmt.Errorf("entry %q of the device map: want PATH=DEVICE", item)
		}
		d, err := parseDevice(name)
		if err == nil {
			err = pins.add(Entry{path, d})
		}
		if err != nil {
			return Map{}, fmt.Errorf("entry %q of the device map: %w", item, err)
		}
	}
	return pins, nil
}

// ParseMaxMemory parses "DEVICE=SIZE,DEVICE=SIZE", such as "0=20GiB,cpu=30GiB", in the given
// order. A size is as in ParseSize, or a plain number of bytes. A size without a device is for
// the CPU. Sizes in bits, such as "8gb" in Accelerate's notation, and numbers of bytes below 64
// KiB have a warning.
func ParseMaxMemory(text string) ([]DeviceMemory, error) {
	var list []DeviceMemory
	for item := range strings.SplitSeq(text, ",") {
		m, err := parseMemory(item)
		if err == nil && slices.ContainsFunc(list, func(o DeviceMemory) bool { return o.Device == m.Device }) {
			err = fmt.Errorf("got a second limit for %s, want one for each device (a size alone is for cpu)", m.Device)
		}
		if err != nil {
			return nil, fmt.Errorf("devicemap: memory limit %q: %w", item, err)
		}
		list = append(list, m)
	}
	return list, nil
}

func parseMemory(item string) (DeviceMemory, error) {
	name, amount, ok := strings.Cut(item, "=")
	if !ok {
		name, amount = string(CPU), item
	}
	d, err := parseDevice(name)
	if err != nil {
		return DeviceMemory{}, err
	}
	amount = strings.TrimSpace(amount)
	size, err := strconv.ParseInt(amount, 10, 64)
	if err != nil {
		size, err = parseSize(amount)
	}
	if err == nil && size < 0 {
		err = sizeError(amount, "want at least 0")
	}
	if err != nil && !ok {
		err = fmt.Errorf("want DEVICE=SIZE or SIZE, like cpu=30GiB")
	}
	return DeviceMemory{Device: d, Bytes: float64(size), Warning: unitWarning(amount, size)}, err
}

// unitWarning returns a warning for a size that is probably not what the user means: bits, or a
// small number without a unit.
func unitWarning(amount string, size int64) string {
	if _, err := strconv.Atoi(amount); err == nil && 0 < size && size < 1<<16 {
		return fmt.Sprintf("the limit is %s: a number without a unit counts bytes, as in Accelerate; write %sGiB for gibibytes", amount, amount)
	}
	return bitsWarning(amount, size)
}

// bitsWarning returns a warning for a unit with a lower-case b, which means bits as in
// Accelerate.
func bitsWarning(amount string, size int64) string {
	stem, found := strings.CutSuffix(amount, "b")
	if !found || strings.HasSuffix(strings.ToLower(amount), "ib") {
		return ""
	}
	return fmt.Sprintf("%s is %s: a lower-case b means bits, as in Accelerate; write %sB for bytes", amount, FormatSize(size), strings.ToUpper(stem))
}

// An UnknownPathError reports a path of a device map that the model does not have.
type UnknownPathError struct {
	Path string
	Near []string // paths that the model has, nearest first
	Why  string   // what is wrong, if the path is that of an expert
}

// Error names the path and suggests similar ones.
func (e *UnknownPathError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("devicemap: %s: %s", e.Path, e.Why)
	}
	return fmt.Sprintf("devicemap: the model has no module %q%s", e.Path, didYouMean(e.Near))
}

// CheckPaths checks that the model has every path of m. It returns an *[UnknownPathError] for the first
// one that is missing.
func CheckPaths(root *meta.Module, m Map) error {
	t, err := newTable(root, countNothing)
	if err != nil {
		return err
	}
	return t.checkPaths(m)
}

func (t *table) checkPaths(m Map) error {
	for path := range m.All() {
		if _, ok := t.find(path); ok {
			continue
		}
		parent, begin, end, ok := children(path)
		n, found := t.find(parent)
		switch {
		case !ok || !found:
			return &UnknownPathError{Path: path, Near: t.near(path)}
		case t.stack(n) >= end:
		case t.stack(n) > 0:
			return &UnknownPathError{Path: path, Why: fmt.Sprintf("%s has %d experts", parent, t.stack(n))}
		default:
			for i := begin; i < end; i++ {
				if !t.has(meta.Join(parent, strconv.Itoa(i))) {
					return &UnknownPathError{Path: path, Near: t.near(path), Why: t.numbered(n)}
				}
			}
		}
	}
	return nil
}

// checkStacks rejects pins on single tensors of stacked experts.
func (t *table) checkStacks(pins Map) error {
	for path := range pins.All() {
		parent := path[:max(0, strings.LastIndexByte(path, '.'))]
		n, _ := t.find(path)
		if p, ok := t.find(parent); ok && t.stack(p) > 0 && t.nodes[n].path == path && t.nodes[n].module == nil {
			return &UnknownPathError{Path: path, Why: fmt.Sprintf("experts are placed together or one by one: "+
				"place %s, or experts as %s.0 or %s[0:%d]", parent, parent, parent, t.stack(p))}
		}
	}
	return nil
}

// numbered describes the numbers of node i's children, if there are any.
func (t *table) numbered(i int32) string {
	last := 0
	for t.has(meta.Join(t.nodes[i].path, strconv.Itoa(last))) {
		last++
	}
	if last == 0 {
		return ""
	}
	return fmt.Sprintf("%s has 0 to %d", describe(t.nodes[i].path), last-1)
}

// children splits PATH.N and PATH[a:b].
func children(path string) (parent string, begin, end int, ok bool) {
	if parent, begin, end, ok = cutRange(path); ok {
		return parent, begin, end, true
	}
	dot := strings.LastIndexByte(path, '.')
	n, ok := index(path[dot+1:])
	return path[:max(dot, 0)], n, n + 1, ok
}

func (t *table) has(path string) bool {
	_, ok := t.find(path)
	return ok
}

// stack returns the number of experts that node i stacks, or 0 if it is not a stack. A stack is a
// module with tensors and without submodules, which is called experts or named by its MoE layer,
// and whose parameters share their first dimension.
func (t *table) stack(i int32) int {
	m := t.nodes[i].module
	if m == nil || len(m.Params) == 0 || t.nodes[i].name() != "experts" && !t.routed(i) {
		return 0
	}
	count := 0
	for _, p := range m.Params {
		if len(p.Shape) < 2 || count != 0 && p.Shape[0] != count {
			return 0
		}
		count = p.Shape[0]
	}
	return count
}

// routed reports whether an MoE layer names node i, which has parameters, as its experts, such as
// experts.mlp of DBRX. Only the matrices of experts have three dimensions, so most modules need
// no search.
func (t *table) routed(i int32) bool {
	if len(t.nodes[i].module.Params[0].Shape) < 3 {
		return false
	}
	path := t.nodes[i].path
	for at := strings.LastIndexByte(path, '.'); at > 0; at = strings.LastIndexByte(path[:at], '.') {
		parent, ok := t.find(path[:at])
		if !ok || t.nodes[parent].module == nil {
			return false
		}
		if s, ok := t.nodes[parent].module.Resolve().Spec.(*meta.MoESpec); ok {
			return slices.Contains(s.Stacks(), path[at+1:])
		}
	}
	return false
}

// name returns the last part of the node's path.
func (n *node) name() string { return n.path[strings.LastIndexByte(n.path, '.')+1:] }
