// Plan shows where the layers of a large model would live on a small machine. It needs the model's
// config.json alone: no weight, no download, no memory.
//
//	go run ./examples/plan
//	go run ./examples/plan ~/models/qwen3/config.json
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// config is a llama of 8 billion parameters.
const config = `{
	"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
	"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
	"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
	"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000, "tie_word_embeddings": false
}`

func write(to io.Writer, config []byte) error {
	c, err := meta.ReadConfig(config)
	if err != nil {
		return err
	}
	skeleton, err := meta.New(c, nil)
	if err != nil {
		return err
	}
	all, err := dispatch.EstimateMemory(skeleton, dispatch.Options{}, "")
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "%d parameters; in memory as a whole %s, at least %s\n\n", skeleton.Root.NumParameters(),
		devicemap.FormatSize(all.All), devicemap.FormatSize(all.Least))
	plan, _, err := dispatch.Plan(skeleton, dispatch.Options{MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 8 << 30}}})
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(to, "within 8 GiB:\n", plan.Explain())
	return err
}

func main() {
	given := []byte(config)
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: plan [CONFIG.JSON]") }
	flag.Parse()
	if flag.NArg() > 0 {
		b, err := os.ReadFile(flag.Arg(0))
		if err != nil {
			log.Fatal(err)
		}
		given = b
	}
	if err := write(os.Stdout, given); err != nil {
		log.Fatal(err)
	}
}
