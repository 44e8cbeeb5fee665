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

// activationBytes estimates the memory that a token of a batch needs until backward: inputs,
// outputs and activations of the blocks' linear maps. With magnitudes (DoRA), maps keep three more outputs.
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

// recomputes decides --recompute auto for a batch. It is on if the activations would take more than
// 2 GiB or, if all weights train, more than a quarter of the free memory if that is larger. The
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

// magnitudes reports whether the adapter has magnitudes, by --dora or by the config of the one to go on from.
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

// batchTokens returns the tokens of the longest batch of one rank.
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
// --plugin gemini, or 0 if they stay in memory: what --max-memory leaves beside passes and the copies of the
// largest weight that saving makes, in float32 and rounded.
func (s *student) stateMemory(m *meta.Model) int64 {
	if s.memory == 0 || s.LoRA != "" {
		return 0
	}
	limit := s.memory
	if limit >= 1<<30 { // below, it comes on top, as in serve
		limit -= runtimeBytes
	}
	largest := int64(0)
	for _, p := range m.Root.AllParams() {
		largest = max(largest, p.Elements())
	}
	return max(limit/int64(s.here)-s.passBytes(m)-6*largest, 1)
}

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

// diskBytes returns what was read of weights and training state that do not fit into MaxMemory.
func (s *student) diskBytes() int64 { return s.model.FrozenMemory().Read + s.model.OffloadStats().Read }

// baseMemory returns the memory for one rank's frozen weights, or 0 to use them in the page cache:
// the memory that --max-memory leaves, or half of the available memory if the weights take more.
// beside is what a rank takes apart from them.
func (s *student) baseMemory(host dispatch.Host, beside int64) int64 {
	limit := s.memory
	if limit == 0 {
		if !s.beyond(host) {
			return 0
		}
		ranks := int64(s.here)
		return max(min(host.AvailableBytes/2/ranks, (host.AvailableBytes-programBytes)/ranks-beside), 1)
	}
	if limit >= 1<<30 { // below, it comes on top, as in serve
		limit -= runtimeBytes
	}
	return max(limit/int64(s.here)-beside, 1)
}

// beyond reports whether the weights take more than half of the available memory.
func (s *student) beyond(host dispatch.Host) bool {
	return host.AvailableBytes > 0 && s.checkpoint.Bytes() > host.AvailableBytes/2
}

// adapterBytes returns the memory of an adapter of c that trains: weights, gradients and the optimizer's state.
func (s *student) adapterBytes(m *meta.Model, c model.LoRAConfig) (int64, error) {
	var n int64
	if dir, ok := strings.CutPrefix(s.LoRA, adapterFrom); ok {
		info, err := os.Stat(filepath.Join(dir, "adapter_model.safetensors"))
		if err != nil {
			return 0, nil // LoadAdapter says what is missing
		}
		n = info.Size() / 4 // in float32, which train run writes
	} else {
		var err error
		if n, err = c.Elements(m); err != nil {
			return 0, err
		}
	}
	each, err := s.trainedBytes()
	return n * each, err
}

// trainedBytes returns the bytes of a number that trains: its value, its gradient and the optimizer's state, as in a
// large matrix and rounded down.
func (s *student) trainedBytes() (int64, error) {
	opt, err := s.descent()
	if err != nil {
		return 0, err
	}
	const side, value, gradient = 4096, 4, 4
	return value + gradient + opt.StateBytes(side, side)/(side*side), nil
}

// programBytes is the memory of the program, the tokenizer and the Go runtime beside what this package estimates:
// 21 MiB of anonymous memory and 6 MiB of mapped pages that the run uses again and again, measured with 271M parameters, and the runtime's
// headroom.
const programBytes = 32 << 20

// runtimeBytes is what a limit of 1 GiB and more keeps for the program, the tokenizer and the Go runtime. Below, it comes
// on top.
const runtimeBytes = 128 << 20

// warnGroup warns if the process's control group has less memory than the run takes at least. There the
// kernel ends the process without a message. way says how to take less.
func (s *student) warnGroup(host dispatch.Host, minimum int64, way string) {
	if minimum += programBytes; host.LimitBytes > 0 && minimum > host.LimitBytes {
		s.log.Warn("the control group's memory limit is below the minimum, so that the kernel may kill the run: raise the limit, or "+way,
			"limit", devicemap.FormatSize(host.LimitBytes), "minimum", devicemap.FormatSize(minimum))
	}
}

// warnState warns if weights, gradients and the optimizer's state do not fit into the process's control group. It fails if the
// optimizer's options are wrong.
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

// leastLogitRows is the number of rows from which repacking the head's weights for each group of rows takes little of the time.
const leastLogitRows = 32

// logitRows returns how many rows of logits a loss holds at a time if a base streams within --max-memory or the available
// memory, so that they and their gradients take a sixteenth of it; 0 if it does not stream or the head trains.
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

// trainsHead reports whether the head trains, or the adapter may have something for it.
func (s *student) trainsHead(head string) bool {
	c, err := parseLoRA(s.LoRA)
	return err != nil || s.LoRA == "" || strings.HasPrefix(s.LoRA, adapterFrom) || len(s.ModulesToSave) > 0 ||
		slices.ContainsFunc(c.Targets, func(t string) bool { return strings.Contains(head, t) })
}

// passBytes estimates the memory of a pass over streamed weights: the inputs of all units, the
// activations of the largest one with their gradients, and some rows of logits.
func (s *student) passBytes(m *meta.Model) int64 {
	root, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return 0
	}
	blocks, tokens := blocksOf(m), s.batchTokens()
	logits := min(tokens*int64(root.Vocab), 22<<20)
	if rows := s.logitRows(m); rows > 0 {
		logits = min(logits, rows*int64(root.Vocab))
	}
	return tokens*(2*activationBytes(m, s.magnitudes())/max(blocks, 1)+4*(blocks+4)*int64(root.Hidden)) + 2*4*logits
}

// blocksOf counts a model's blocks.
func blocksOf(m *meta.Model) (n int64) {
	for _, node := range m.Root.Walk() {
		if node.Kind == meta.KindBlock {
			n++
		}
	}
	return n
}

// sweeping are the batches of a step that share a sweep over a base that streams, and the states between blocks that they
// keep until backward.
type sweeping struct {
	batches int   // at most
	memory  int64 // bytes of states in memory, which passBytes counts as those of a batch by itself
	disk    int64 // and in a scratch file in --output
}

// sweeps chooses as many batches of a step as there is disk for: half of what is free.
func (s *student) sweeps(m *meta.Model) (w sweeping) {
	root, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok || s.GradientAccumulationSteps < 2 {
		return sweeping{batches: 1}
	}
	each := 4 * s.batchTokens() * int64(root.Hidden) * (blocksOf(m) + 1)
	w = sweeping{batches: s.GradientAccumulationSteps, memory: each}
	if _, free, err := s.space(s.Output); err == nil {
		w.batches = int(min(int64(w.batches), 1+free/2/int64(s.here)/max(each, 1)))
	}
	w.disk = int64(w.batches-1) * each
	return w
}

// together returns how many of n batches are computed together.
func (s *student) together(n int) int {
	if !s.model.Sweeps() {
		return 1
	}
	return min(n, max(s.sweep.batches, 1))
}

// showMemory logs where frozen weights are, and warns if they and what a rank takes beside them are more than a limit.
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
