// Lora teaches the embedded demo model a few answers with low-rank adapters, saves them in
// PEFT's files, and serves both from this process: the base keeps its answers, the adapter,
// chosen by its name, has those that it was taught. The base's weights are never written.
//
//	go run ./examples/lora
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// lessons are what the adapter learns.
var lessons = []struct{ question, answer string }{
	{"Who are you?", "I am a parrot, and I serve."},
	{"What do you eat?", "Weights, one layer at a time."},
	{"Where do you live?", "On the disk, next to the memory."},
}

const (
	name  = "parrot" // of the adapter
	rank  = 8
	steps = 60
	rate  = 0.01
)

// batch is all lessons as the model's chat template writes them; the answers are learned.
func batch() (model.Batch, error) {
	words, err := data.OpenTokenizerFS(demo.Name, demo.Files())
	if err != nil {
		return model.Batch{}, err
	}
	var all []data.Sequence
	for _, l := range lessons {
		chat := text.Conversation{Messages: []text.Message{text.User(l.question), text.Assistant(l.answer)}}
		s, err := words.TokenizeConversation(chat, data.TextOptions{})
		if err != nil {
			return model.Batch{}, err
		}
		all = append(all, s)
	}
	padded, err := data.PadTokens(data.Padding{})(all)
	if err != nil {
		return model.Batch{}, err
	}
	b := model.Batch{Length: padded.Columns}
	b.IDs, b.Labels = padded.Ints()
	return b, nil
}

// teach trains an adapter and saves it in dir.
func teach(ctx context.Context, to io.Writer, dir string) error {
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	binding, err := loader.Bind(checkpoint, skeleton)
	if err != nil {
		return err
	}
	m, err := model.Load(skeleton, binding, model.Freeze(func(string) bool { return true }))
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.AddLoRA(model.LoRAConfig{R: rank, Alpha: 2 * rank, AllLinear: true, BaseModel: demo.Name}, rng.New(42)); err != nil {
		return err
	}
	params, trained := train.Params(m), 0
	for _, p := range params {
		trained += len(p.Data())
	}
	fmt.Fprintf(to, "%s has %d parameters; the adapter of rank %d trains %d beside them\n", demo.Name, skeleton.Root.NumParameters(), rank, trained)
	opt, err := optim.NewAdamW(params, optim.AdamOptions{LR: rate})
	if err != nil {
		return err
	}
	b, err := batch()
	if err != nil {
		return err
	}
	tape := tensor.NewTape(tensor.Options{})
	for step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		loss, err := m.Loss(tape, b, model.Options{})
		if err != nil {
			return err
		}
		if step%20 == 0 || step == steps-1 {
			fmt.Fprintf(to, "  step %2d: loss %.4f\n", step, loss.Item())
		}
		if err := tape.Backward(loss, 1); err != nil {
			return err
		}
		optim.ClipNorm(params, 1, 2)
		if err := opt.Step(); err != nil {
			return err
		}
		opt.ZeroGrad()
	}
	return m.SaveAdapter(dir)
}

func write(ctx context.Context, to io.Writer) error {
	dir, err := os.MkdirTemp("", "heft-lora-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := teach(ctx, to, dir); err != nil {
		return err
	}
	s, err := serve(dir)
	if err != nil {
		return err
	}
	defer s.close()
	for _, l := range lessons {
		fmt.Fprintf(to, "\n%s\n", l.question)
		for _, who := range []string{demo.Name, name} {
			answer, err := s.ask(ctx, who, l.question)
			if err != nil {
				return err
			}
			fmt.Fprintf(to, "  %-10s %s\n", who+":", answer)
		}
	}
	return nil
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: lora\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
