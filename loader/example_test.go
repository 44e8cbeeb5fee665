package loader_test

import (
	"fmt"
	"log"
	"os"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
)

// OpenModel does the same for a folder.
func ExampleOpenModelFS() {
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	defer checkpoint.Close()
	fmt.Println(skeleton.Root.Class, skeleton.Root.NumParameters(), "parameters")
	binding, err := loader.Bind(checkpoint, skeleton)
	if err != nil {
		log.Fatal(err)
	}
	norm := skeleton.Root.Find("model.norm")
	dtype, values, err := binding.Values(norm.Params[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dtype, norm.Params[0].Shape, len(values), "bytes")
	// Output:
	// LlamaForCausalLM 2164800 parameters
	// bfloat16 [192] 384 bytes
}

func ExampleSave() {
	dir, err := os.MkdirTemp("", "heft-save-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	checkpoint, err := loader.OpenFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	defer checkpoint.Close()
	norm, _ := checkpoint.Lookup("model.norm.weight")
	if err := loader.Save(dir, func(yield func(loader.NamedTensor) bool) { yield(norm.Named()) }, loader.SaveOptions{}); err != nil {
		log.Fatal(err)
	}
	saved, err := loader.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer saved.Close()
	for name := range saved.Names() {
		fmt.Println(name)
	}
	// Output:
	// model.norm.weight
}
