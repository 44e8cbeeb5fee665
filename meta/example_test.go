package meta_test

import (
	"fmt"

	"github.com/heftai/heft/meta"
)

// The skeleton of a model from its config.json alone.
func ExampleNew() {
	cfg, err := meta.ReadConfig([]byte(`{
		"model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
		"num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := meta.New(cfg, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := model.Root.Find("model.layers.0.self_attn.q_proj")
	fmt.Println(model.Root.NumParameters(), "parameters")
	fmt.Println(q.Class, q.Param("weight").Shape, q.Param("weight").DType)
	// Output:
	// 405853388800 parameters
	// Linear [16384 16384] bfloat16
}

// A tree of one's own, with two layers that share their weights.
func ExampleBuilder() {
	b := meta.NewBuilder("Sequential", meta.Float32).Runs(meta.KindSequential, nil)
	first := b.Linear("0", 4, 8, true)
	b.Activation("1", "ReLU", meta.ActReLU)
	second := b.Child("2", "Linear").Runs(meta.KindLinear, &meta.LinearSpec{In: 4, Out: 8})
	second.Tied("weight", first.Module().Param("weight"))
	root, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, err := meta.WriteTree(root)
	fmt.Println(string(tree), err)
	// Output:
	// {"class":"Sequential","children":[["0",{"class":"Linear","params":[["weight",[8,4],"float32"],["bias",[8],"float32"]]}],["1",{"class":"ReLU"}],["2",{"class":"Linear","params":[["weight",[8,4],"float32","0.weight"]]}]]} <nil>
}
