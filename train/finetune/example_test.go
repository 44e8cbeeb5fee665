package finetune_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/train/finetune"
)

// An adapter of the embedded demo model learns an answer.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "finetune")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	base, records := filepath.Join(dir, "model"), filepath.Join(dir, "data.jsonl")
	if err := os.CopyFS(base, demo.Files()); err != nil {
		log.Fatal(err)
	}
	const chat = `{"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am a parrot."}]}` + "\n"
	if err := os.WriteFile(records, []byte(chat+chat), 0o600); err != nil {
		log.Fatal(err)
	}
	o := finetune.Defaults()
	o.Output, o.LoRA, o.Batch, o.MaxSteps, o.LearningRate = filepath.Join(dir, "adapter"), "r=8,targets=all-linear", 2, 10, 0.01
	result, err := finetune.Run(context.Background(), base, []string{records}, o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Steps, *result.Loss < 2)
	_, err = os.Stat(filepath.Join(o.Output, "adapter_model.safetensors"))
	fmt.Println(err)
	// Output:
	// 10 true
	// <nil>
}
