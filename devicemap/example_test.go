package devicemap_test

import (
	"fmt"
	"os"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// A model of four blocks on a machine without a GPU, which has room for some of them.
func ExampleSolve() {
	cfg, err := meta.ReadConfig([]byte(`{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
		"num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 4096, "torch_dtype": "bfloat16"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := meta.New(cfg, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	policy, err := devicemap.ParsePolicy("model.layers.0=disk")
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := devicemap.Solve(model, []devicemap.Budget{
		{Device: devicemap.CPU, Limit: 24 << 20, KV: 2 << 20, Activations: 1 << 20},
	}, policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan.Explain())
	// Output:
	// policy auto
	// cpu   limit 24.0 MiB = weights 10.5 MiB + kv 2.00 MiB + activations 1.00 MiB + staging 10.0 MiB + free 501 KiB
	//       model.layers.1-3, model.norm, model.rotary_emb
	// disk  weights 17.5 MiB, of which a token reads 13.5 MiB
	//       model.embed_tokens, model.layers.0, model.layers.1-3.mlp.gate_proj, model.layers.3.mlp.up_proj, model.layers.3.self_attn.q_proj, lm_head
	// minimum 13.0 MiB on the host: staging for streamed weights, the KV cache of one sequence, activations
}

func ExamplePlan_Render() {
	root := &meta.Module{Class: "Model"}
	for i := range 12 {
		root.Children = append(root.Children, &meta.Module{Name: fmt.Sprint(i), Class: "Linear",
			Params: []*meta.Param{{Name: "weight", Shape: []int{1024, 1024}, DType: meta.BFloat16}}})
	}
	plan, err := devicemap.Solve(&meta.Model{Root: root}, []devicemap.Budget{
		{Device: devicemap.GPU(0), Limit: 9 << 20, KV: 1 << 20},
		{Device: devicemap.CPU, Limit: 12 << 20},
	}, devicemap.Policy{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := plan.Render(os.Stdout, false, 60); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 0 0   ▓ cpu   ░ disk
	//
	// 0-11  0000▓▓▓▓░░░░
	//
	// device       limit   weights        kv activations   staging      free
	// 0         9.00 MiB  8.00 MiB  1.00 MiB         0 B       0 B       0 B
	//         [00000000000000000000000000000000000000000000kkkkkk]
	// cpu       12.0 MiB  8.00 MiB       0 B         0 B  4.00 MiB       0 B
	//         [▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓sssssssssssssssss]
	// disk             -  8.00 MiB       0 B         0 B       0 B         -
}
