package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// lessons are a file of conversations.
const lessons = `{"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am a parrot, and I serve."}]}
{"messages": [{"role": "user", "content": "What do you eat?"}, {"role": "assistant", "content": "Weights, one layer at a time."}]}
`

// read tokenises a JSONL file.
func read(folder, file string) (batch model.Batch, err error) {
	words, err := data.OpenTokenizer(folder)
	if err != nil {
		return batch, err
	}
	records, err := data.OpenJSONL(file)
	if err != nil {
		return batch, err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	var all []data.Sequence
	for i := range records.Len() {
		record, err := records.At(i)
		if err != nil {
			return batch, err
		}
		s, err := record.Tokenize(words, words, data.TextOptions{})
		if err != nil {
			return batch, err
		}
		all = append(all, s)
	}
	padded, err := data.PadTokens(data.Padding{})(all)
	if err != nil {
		return batch, err
	}
	batch.Length = padded.Columns
	batch.IDs, batch.Labels = padded.Ints()
	return batch, nil
}

// tune trains a LoRA adapter of the model in folder and saves it.
func tune(ctx context.Context, folder, dir, adapter string) error {
	file := filepath.Join(dir, "lessons.jsonl")
	if err := os.WriteFile(file, []byte(lessons), 0o600); err != nil {
		return err
	}
	batch, err := read(folder, file)
	if err != nil {
		return err
	}
	skeleton, checkpoint, err := loader.OpenModel(folder)
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
	if err := m.AddLoRA(model.LoRAConfig{R: 8, Alpha: 16, AllLinear: true, BaseModel: folder}, rng.New(42)); err != nil {
		return err
	}
	params := train.Params(m)
	opt, err := optim.NewAdamW(params, optim.AdamOptions{LR: 0.01})
	if err != nil {
		return err
	}
	tape := tensor.NewTape(tensor.Options{})
	for range 40 {
		if err := ctx.Err(); err != nil {
			return err
		}
		loss, err := m.Loss(tape, batch, model.Options{})
		if err != nil {
			return err
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
	return m.SaveAdapter(adapter)
}
