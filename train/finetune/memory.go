package finetune

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/model"
)

// activationBytes estimates the bytes that one token of a batch keeps until the backward pass:
// inputs, outputs and activations of the blocks' linear maps. With magnitudes (DoRA), each map
// keeps three more outputs.
func activationBytes(m *meta.Model, magnitudes bool) int64 {
	outputs := 2
	if magnitudes {
		outputs = 5
	}
	head := ""
	if s, ok := m.Root.Spec.(*meta.CausalLMSpec); ok {
		head = s.Head
	}
	var floats int64
	for path, node := range m.Root.Walk() {
		switch s := node.Spec.(type) {
		case *meta.LinearSpec:
			if path != head {
				floats += int64(s.In + outputs*s.Out)
			}
		case *meta.MoESpec:
			if stacks := node.ExpertStacks(s); len(stacks) > 0 && stacks[0].Param(s.GateUp) != nil {
				if shape := stacks[0].Param(s.GateUp).Shape; len(shape) == 3 { // [E, 2·F, H]
					floats += int64(s.TopK) * int64(3*shape[2]+3*shape[1])
				}
			}
		}
	}
	return 4 * floats
}

// recomputes decides --recompute auto. It returns true if the activations of a batch would exceed 2
// GiB. If all weights train, the limit is a quarter of the free memory if that is larger. The
// weights are bitwise the same either way.
func (j *job) recomputes(m *meta.Model) bool {
	switch j.Recompute {
	case "on":
		return true
	case "off":
		return false
	}
	limit := int64(2 << 30)
	if host := dispatch.DescribeHost(); j.LoRA == "" {
		limit = max(limit, host.AvailableBytes/4)
	}
	return int64(j.here)*j.batchTokens()*activationBytes(m, j.magnitudes()) > limit
}

// magnitudes reports whether the adapter has magnitudes, by --dora or by the config of the adapter
// to continue.
func (j *job) magnitudes() bool {
	dir, ok := strings.CutPrefix(j.LoRA, adapterFrom)
	if !ok {
		return j.DoRA
	}
	var config struct {
		DoRA bool `json:"use_dora"`
	}
	b, err := smallfile.Read(filepath.Join(dir, "adapter_config.json"), smallfile.Config)
	return err == nil && json.Unmarshal(b, &config) == nil && config.DoRA
}

// batchTokens returns the number of tokens in the longest batch of one rank.
func (j *job) batchTokens() int64 { return int64(j.Batch * j.data.longest) }

// limit returns the bytes of --max-memory, or 0.
func (c *job) limit() (int64, error) {
	if c.MaxMemory == "" {
		return 0, nil
	}
	limits, err := devicemap.ParseMaxMemory(c.MaxMemory)
	if err != nil {
		return 0, misusef("--max-memory: %w", err)
	}
	var bytes int64
	for _, l := range limits {
		if l.Device != devicemap.CPU {
			return 0, misusef("--max-memory: got device %s, want cpu", l.Device)
		}
		bytes = int64(l.Bytes)
	}
	switch {
	case bytes <= 0:
		return 0, misusef("--max-memory: got %s, want more than 0", c.MaxMemory)
	case c.LoRA == "" && c.Plugin != "gemini":
		return 0, misusef("--max-memory needs --lora, or --plugin gemini for a full fine-tune: other plugins keep weights, gradients and the optimizer's state in memory")
	case c.LoRA == "" && c.MixedPrecision == "fp16":
		return 0, misusef("--max-memory with --plugin gemini: fp16 is not supported, use --mixed-precision bf16")
	}
	return bytes, nil
}

// stateMemory returns the memory for one rank's weights, gradients and optimizer state under
// --plugin gemini, or 0 if they stay in memory. It is --max-memory without the memory of passes and
// without the copies of the largest weight that saving makes, in float32 and rounded.
func (s *student) stateMemory(m *meta.Model) int64 {
	if s.memory == 0 || s.LoRA != "" {
		return 0
	}
	limit := s.memory
	if limit >= 1<<30 { // smaller limits exclude it, as in serve
		limit -= runtimeBytes
	}
	largest := int64(0)
	for _, p := range m.Root.AllParams() {
		largest = max(largest, p.Elements())
	}
	return max(limit/int64(s.here)-s.passBytes(m)-savedCopies*largest, 1)
}

// savedCopies are the bytes per number of the largest weight that saving takes. leastState are those
// that streaming takes as well, for the weight, its gradient and the optimizer's state.
const savedCopies, leastState = 6, 6 + 3*weightBytes

// showState logs how much of the training state fits into memory.
func (s *student) showState(limit int64) {
	if !s.acc.IsMainProcess() {
		return
	}
	var weights, largest int64
	for _, p := range s.model.Parameters() {
		weights, largest = weights+4*int64(p.Len()), max(largest, 4*int64(p.Len()))
	}
	args := []any{"memory", devicemap.FormatSize(limit), "weights", devicemap.FormatSize(weights)}
	if 3*largest > limit {
		s.log.Warn("--max-memory is below the minimum: the largest weight takes the minimum", append(args, "minimum", devicemap.FormatSize(3*largest))...)
		return
	}
	s.log.Info("weights, gradients and the optimizer's state move between memory and disk", args...)
}

// diskBytes returns the bytes read of weights and training state that do not fit into MaxMemory.
func (s *student) diskBytes() int64 { return s.model.FrozenMemory().Read + s.model.OffloadStats().Read }

// baseMemory returns the memory for one rank's frozen weights, or 0 to use them in the page cache.
// It is the rest of --max-memory, or half of the available memory if the weights exceed that.
// beside is the memory that a rank needs in addition to the weights.
func (s *student) baseMemory(host dispatch.Host, beside int64) int64 {
	limit := s.memory
	if limit == 0 {
		if !s.beyond(host) {
			return 0
		}
		ranks := int64(s.here)
		return max(min(host.AvailableBytes/2/ranks, (host.AvailableBytes-programBytes)/ranks-beside), 1)
	}
	if limit >= 1<<30 { // smaller limits exclude it, as in serve
		limit -= runtimeBytes
	}
	return max(limit/int64(s.here)-beside, 1)
}

// beyond reports whether the weights exceed half of the available memory.
func (s *student) beyond(host dispatch.Host) bool {
	return host.AvailableBytes > 0 && s.checkpoint.Bytes() > host.AvailableBytes/2
}

// adapterBytes returns the memory of an adapter in training: weights, gradients and the optimizer's
// state.
func (s *student) adapterBytes(m *meta.Model, c model.LoRAConfig) (int64, error) {
	var n int64
	if dir, ok := strings.CutPrefix(s.LoRA, adapterFrom); ok {
		info, err := os.Stat(filepath.Join(dir, "adapter_model.safetensors"))
		if err != nil {
			return 0, nil // LoadAdapter reports the error
		}
		n = info.Size() / 4 // in float32, as train run writes them
	} else {
		var err error
		if n, err = c.Elements(m); err != nil {
			return 0, err
		}
	}
	each, err := s.trainedBytes()
	return n * each, err
}

// trainedBytes returns the bytes per trained number: its value, its gradient and the optimizer's
// state. It assumes a large matrix and rounds down.
func (s *student) trainedBytes() (int64, error) {
	opt, err := s.descent()
	if err != nil {
		return 0, err
	}
	const side = 4096
	return weightBytes + gradientBytes + opt.StateBytes(side, side)/(side*side), nil
}

// weightBytes and gradientBytes are the bytes of a number that trains, and of its gradient.
const weightBytes, gradientBytes = 4, 4

// programBytes is the memory of the program, the tokenizer and the Go runtime that the other
// estimates of this package omit: 21 MiB of anonymous memory and 6 MiB of mapped pages that the run
// uses repeatedly, measured with 271M parameters, and the runtime's headroom.
const programBytes = 32 << 20

// runtimeBytes is the part of a limit of at least 1 GiB that is reserved for the program, the
// tokenizer and the Go runtime. A smaller limit does not include them.
const runtimeBytes = 128 << 20

// warnGroup warns if the process's control group has less memory than the minimum that the run
// needs. In that case the kernel would kill the process without a message. way tells how to use
// less.
func (s *student) warnGroup(host dispatch.Host, minimum int64, way string) {
	if minimum += programBytes; host.LimitBytes > 0 && minimum > host.LimitBytes {
		s.log.Warn("the control group's memory limit is below the minimum, so that the kernel may kill the run: raise the limit, or "+way,
			"limit", devicemap.FormatSize(host.LimitBytes), "minimum", devicemap.FormatSize(minimum))
	}
}

// warnState warns if weights, gradients and the optimizer's state do not fit into the process's
// control group. It returns an error if the optimizer's options are invalid.
func (s *student) warnState(host dispatch.Host, m *meta.Model, frozen func(string) bool) error {
	each, err := s.trainedBytes()
	if err != nil {
		return misuse(err)
	}
	var trained int64
	for path, p := range m.Root.AllParams() {
		if p.SameAs == nil && (frozen == nil || !frozen(path)) {
			trained += p.Elements()
		}
	}
	s.warnGroup(host, trained*each, "use --plugin gemini --max-memory cpu=SIZE")
	return nil
}

// leastLogitRows is the number of rows from which repacking the head's weights for each chunk of
// rows costs little time.
const leastLogitRows = 32

// logitRows returns the number of rows of logits that a loss holds at a time if a base streams
// within --max-memory or the available memory. The logits and their gradients then take a sixteenth
// of it. It returns 0 if the base does not stream or the head trains.
func (s *student) logitRows(m *meta.Model) int64 {
	root, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok || s.trainsHead(root.Head) {
		return 0
	}
	limit := s.memory
	if limit == 0 && s.checkpoint != nil {
		if host := dispatch.DescribeHost(); s.beyond(host) {
			limit = host.AvailableBytes
		}
	}
	if limit == 0 {
		return 0
	}
	const logit = 2 * 4 // with its gradient
	return max(limit/int64(s.here)/16/(logit*int64(root.Vocab)), leastLogitRows)
}

// trainsHead reports whether the head trains, or whether the adapter may include it.
func (s *student) trainsHead(head string) bool {
	c, err := parseLoRA(s.LoRA)
	return err != nil || s.LoRA == "" || strings.HasPrefix(s.LoRA, adapterFrom) || len(s.ModulesToSave) > 0 ||
		slices.ContainsFunc(c.Targets, func(t string) bool { return strings.Contains(head, t) })
}

// passBytes estimates the memory of a pass over streamed weights: the inputs of all units, the
// activations of the largest unit with their gradients, and some rows of logits.
func (s *student) passBytes(m *meta.Model) int64 {
	root, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return 0
	}
	blocks := blocksOf(m)
	return s.batchTokens()*(2*activationBytes(m, s.magnitudes())/max(blocks, 1)+4*(blocks+4)*int64(root.Hidden)) + s.logitBytes(m)
}

// logitBytes estimates the memory of the logits that a loss holds at a time, and of their gradients.
func (s *student) logitBytes(m *meta.Model) int64 {
	root, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return 0
	}
	logits := min(s.batchTokens()*int64(root.Vocab), 22<<20)
	if rows := s.logitRows(m); rows > 0 {
		logits = min(logits, rows*int64(root.Vocab))
	}
	return 2 * 4 * logits
}

// blocksOf returns the number of a model's blocks.
func blocksOf(m *meta.Model) (n int64) {
	for _, node := range m.Root.Walk() {
		if node.Kind == meta.KindBlock {
			n++
		}
	}
	return n
}

// showMemory logs where frozen weights are. It warns if they exceed a limit together with the other
// memory of a rank.
func (s *student) showMemory(host dispatch.Host, beside int64) {
	f := s.model.FrozenMemory()
	if f.Limit == 0 { // in the page cache, or converted
		s.warnGroup(host, int64(s.here)*beside, "use a smaller --batch, --sequence or rank")
		return
	}
	args := []any{"resident", devicemap.FormatSize(f.Resident), "read_per_sweep", devicemap.FormatSize(f.Streamed), "staging", devicemap.FormatSize(f.Staging),
		"beside", devicemap.FormatSize(beside)}
	if s.sweep.batches > 1 {
		args = append(args, "batches_per_sweep", s.sweep.batches, "activations_on_disk", devicemap.FormatSize(s.sweep.disk), "packed", devicemap.FormatSize(f.Packed))
	}
	ranks := int64(s.here)
	minimum, takes := ranks*(f.Minimum+beside), ranks*(f.Resident+f.Staging+f.Packed+beside)
	switch {
	case f.Minimum > f.Limit && s.memory > 0:
		least := minimum
		if s.memory >= 1<<30 {
			least += runtimeBytes
		}
		s.log.Warn("--max-memory is below the minimum: the run takes the minimum", append(args, "minimum", devicemap.FormatSize(least))...)
	case f.Streamed > 0:
		s.log.Info("frozen weights stream from the disk", args...)
	}
	if room := host.LimitBytes - programBytes; minimum <= room && takes > room {
		s.log.Warn("the control group's memory limit is below --max-memory, so that the kernel may kill the run: use a lower --max-memory",
			"limit", devicemap.FormatSize(host.LimitBytes), "max_memory", "cpu="+devicemap.FormatSize(room))
		return
	}
	s.warnGroup(host, minimum, "use a smaller --batch, --sequence or rank")
}
