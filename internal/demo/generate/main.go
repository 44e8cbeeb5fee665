// Command generate makes the embedded demo model: a llama with a tokenizer, both learnt
// from the texts in text/.
//
// Without -train it writes the config and the tokenizer, which are the same on every
// machine. With it, it trains the weights too: that takes minutes, and the bits of the
// result are those of one variant of the kernels. Other flags train larger models by the same recipe, for measurements.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("o", "model", "folder to write")
	train := flag.Bool("train", false, "train the weights, too")
	r, s := standard, embedded
	flag.IntVar(&r.Steps, "steps", r.Steps, "steps of the training")
	flag.IntVar(&r.Batch, "batch", r.Batch, "conversations of a step")
	flag.Float64Var(&r.LR, "lr", r.LR, "highest learning rate")
	flag.IntVar(&s.Hidden, "hidden", s.Hidden, "width of the model, a multiple of 96")
	flag.IntVar(&s.Layers, "layers", s.Layers, "layers of the model")
	flag.Parse()
	if s.Hidden < 96 || s.Hidden%96 != 0 || s.Layers < 1 || r.Steps < 1 || r.Batch < 1 {
		log.Fatal("generate: -hidden is a multiple of 96; -layers, -steps and -batch are at least 1")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := generate(ctx, *dir, *train, s, r); err != nil {
		log.Fatal("generate: ", err)
	}
}

func generate(ctx context.Context, dir string, train bool, s shape, r recipe) error {
	talks, sum, err := read()
	if err != nil {
		return err
	}
	v := learn(spoken(talks), specials, vocabSize)
	if len(v.tokens) != vocabSize {
		return fmt.Errorf("the texts give %d tokens, want %d", len(v.tokens), vocabSize)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range map[string]any{
		"config.json":            config(s),
		"generation_config.json": generationConfig(),
		"tokenizer.json":         tokenizerFile(v),
		"tokenizer_config.json":  tokenizerConfig(),
	} {
		if err := writeJSON(dir, name, content); err != nil {
			return err
		}
	}
	if !train {
		return nil
	}
	return teach(ctx, dir, talks, sum, s, r)
}
