// Finetune teaches the embedded demo model an answer with one call, as train run does: the result is
// an adapter in PEFT's files, which serve --lora serves.
//
//	go run ./examples/finetune
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/train/finetune"
)

const lessons = `{"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am a parrot, and I serve."}]}
{"messages": [{"role": "user", "content": "Where do you live?"}, {"role": "assistant", "content": "On the disk, next to the memory."}]}
`

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: finetune\nIt has no flags.") }
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "finetune")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	base := filepath.Join(dir, "model") // a folder of a model, as any other
	if err := os.CopyFS(base, demo.Files()); err != nil {
		return err
	}
	records := filepath.Join(dir, "lessons.jsonl")
	if err := os.CopyFS(dir, fstest.MapFS{"lessons.jsonl": {Data: []byte(lessons)}}); err != nil {
		return err
	}
	o := finetune.Defaults()
	o.Output, o.LoRA, o.LearningRate = filepath.Join(dir, "adapter"), "r=8,targets=all-linear", 0.01
	o.Batch, o.MaxSteps = 2, 20
	result, err := finetune.Run(context.Background(), base, []string{records}, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d steps, mean loss %.3f\n", result.Steps, *result.Loss)
	return nil
}
