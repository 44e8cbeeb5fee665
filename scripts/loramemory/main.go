// Command loramemory fine-tunes a checkpoint with LoRA on random tokens and prints what it
// took: the most anonymous memory, the time of a step, the losses. check-lora-memory.sh
// compares the first with a limit.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

func main() {
	r := run{}
	flag.StringVar(&r.dir, "model", "", "folder of the checkpoint")
	flag.IntVar(&r.rank, "rank", 16, "rank of the pairs, on every linear map but the head")
	flag.IntVar(&r.batch, "batch", 1, "sequences of a step")
	flag.IntVar(&r.length, "sequence", 256, "tokens of a sequence")
	flag.IntVar(&r.steps, "steps", 3, "steps")
	flag.StringVar(&r.out, "output", "", "folder for the adapter")
	flag.Parse()
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "loramemory:", err)
		os.Exit(1)
	}
}

type run struct {
	dir, out                   string
	rank, batch, length, steps int
}

// result is what is printed.
type result struct {
	Parameters     int64     `json:"trained_parameters"`
	PeakAnonymous  int64     `json:"peak_anonymous_bytes"`
	SecondsPerStep float64   `json:"seconds_per_step"`
	Losses         []float32 `json:"losses"`
}

func (r *run) run() error {
	var peak atomic.Int64
	go watch(&peak)
	cfg, err := meta.ReadConfigFile(filepath.Join(r.dir, "config.json"))
	if err != nil {
		return err
	}
	ck, err := loader.Open(r.dir)
	if err != nil {
		return err
	}
	defer ck.Close()
	m, err := r.open(cfg, ck)
	if err != nil {
		return err
	}
	defer m.Close()
	out, err := r.train(m)
	if err != nil {
		return err
	}
	if r.out != "" {
		if err := m.SaveAdapter(r.out); err != nil {
			return err
		}
	}
	out.PeakAnonymous = max(peak.Load(), anonymous())
	return json.NewEncoder(os.Stdout).Encode(out)
}

func (r *run) open(cfg *meta.Config, ck *loader.Checkpoint) (*model.Model, error) {
	skeleton, err := meta.New(cfg, ck)
	if err != nil {
		return nil, err
	}
	b, err := loader.Bind(ck, skeleton)
	if err != nil {
		return nil, err
	}
	m, err := model.Load(skeleton, b, model.Freeze(func(string) bool { return true }))
	if err != nil {
		return nil, err
	}
	return m, m.AddLoRA(model.LoRAConfig{R: r.rank, Alpha: float64(2 * r.rank), AllLinear: true}, rng.New(1))
}

// train steps on the same tokens, so that the loss falls.
func (r *run) train(m *model.Model) (result, error) {
	var out result
	params := train.Params(m)
	for _, p := range params {
		out.Parameters += int64(len(p.Data()))
	}
	opt, err := optim.NewAdamW(params, optim.DefaultAdamW())
	if err != nil {
		return out, err
	}
	g := rng.New(2)
	batch := model.Batch{Length: r.length}
	for range r.batch * r.length {
		batch.IDs = append(batch.IDs, g.IntN(vocabulary(m)))
	}
	tape := tensor.NewTape(tensor.Options{})
	begin := time.Now()
	for range r.steps {
		loss, err := m.Loss(tape, batch, model.Options{Recompute: true})
		if err == nil {
			out.Losses = append(out.Losses, loss.Item())
			err = tape.Backward(loss, 1)
		}
		if err == nil {
			optim.ClipNorm(params, 1, 2)
			err = opt.Step()
		}
		if err != nil {
			return out, err
		}
		opt.ZeroGrad()
	}
	out.SecondsPerStep = time.Since(begin).Seconds() / float64(r.steps)
	return out, nil
}

func vocabulary(m *model.Model) int {
	if s, ok := m.Meta().Root.Spec.(*meta.CausalLMSpec); ok {
		return s.Vocab
	}
	return 1
}

// watch notes the most anonymous memory that the process has.
func watch(peak *atomic.Int64) {
	for range time.Tick(5 * time.Millisecond) {
		peak.Store(max(peak.Load(), anonymous()))
	}
}

// anonymous is RssAnon in bytes, 0 where the system does not say.
func anonymous() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			fields := bytes.Fields(rest)
			if len(fields) > 0 {
				n, _ := strconv.ParseInt(string(fields[0]), 10, 64)
				return n << 10
			}
		}
	}
	return 0
}
