package demo_test

import (
	"fmt"
	"io/fs"
	"log"

	"github.com/heftai/heft/loader/demo"
)

func ExampleFiles() {
	names, err := fs.Glob(demo.Files(), "*.json")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(demo.Name, names)
	// Output:
	// heft-demo [config.json generation_config.json tokenizer.json tokenizer_config.json]
}
