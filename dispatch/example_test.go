package dispatch_test

import (
	"context"
	"fmt"
	"log"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
)

// A limit below the minimum is exceeded, and the plan says so.
func ExampleOpenFS() {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, Context: 64,
		MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 1 << 20}}})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	plan := model.Plan()
	fmt.Println(plan.Device(devicemap.CPU).WeightsBytes, "bytes of weights in memory")
	fmt.Println(len(plan.Warnings) > 0, plan.BelowLeast)
	// Output:
	// 0 bytes of weights in memory
	// true true
}

// Plan needs a config.json alone.
func ExamplePlan() {
	config, err := meta.ReadConfig([]byte(`{"model_type": "llama", "dtype": "bfloat16", "hidden_size": 1024, "intermediate_size": 4096,
		"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 32000, "max_position_embeddings": 2048,
		"rms_norm_eps": 1e-5, "tie_word_embeddings": true}`))
	if err != nil {
		log.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		log.Fatal(err)
	}
	plan, _, err := dispatch.Plan(skeleton, dispatch.Options{Threads: 1, MaxSequences: 1, MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 256 << 20}}})
	if err != nil {
		log.Fatal(err)
	}
	all := plan.Device(devicemap.CPU).WeightsBytes + plan.Device(devicemap.Disk).WeightsBytes
	fmt.Println(devicemap.FormatSize(all), "of weights; some stream from the disk:", plan.DiskBytesPerToken > 0)
	// Output:
	// 295 MiB of weights; some stream from the disk: true
}

// Generate works on token ids. Package text makes them.
func ExampleModel_Generate() {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, Context: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	tokenizer, _, err := text.OpenFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	prompt, err := tokenizer.Encode("<|user|>Hello!<|end|><|assistant|>", text.EncodeOptions{AddSpecialTokens: true})
	if err != nil {
		log.Fatal(err)
	}
	var answer []int32
	for id, err := range model.Generate(context.Background(), prompt, dispatch.GenerateOptions{MaxTokens: 11}) {
		if err != nil {
			log.Fatal(err)
		}
		answer = append(answer, id)
	}
	fmt.Println(tokenizer.Decode(answer, true))
	// Output:
	// Hello! I am Heft's demo model
}

func ExampleModel_AddHook() {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, Context: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	hook, err := model.AddHook(dispatch.Hook{Paths: []string{"model.layers.0"}, Post: func(c *dispatch.ModuleCall) error {
		_, err := fmt.Println(c.Path, c.Rows, "rows of", c.Width)
		return err
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer hook.Remove()
	for _, err := range model.Generate(context.Background(), []int32{1, 2, 3}, dispatch.GenerateOptions{MaxTokens: 1}) {
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// model.layers.0 3 rows of 192
}

// A model on the disk tier keeps no weights in memory.
func ExampleDiskOffload() {
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	defer checkpoint.Close()
	model, err := dispatch.DiskOffload(skeleton, checkpoint, dispatch.Options{Threads: 1, Context: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	fmt.Println(model.DeviceMap())
	// Output:
	// =disk
}
