package wire_test

import (
	"fmt"

	"github.com/heftai/heft/api/wire"
)

func ExampleParseFields() {
	f, err := wire.ParseFields([]byte(`{"n": 3.0, "options": {"depth": "deep"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, depth := 1, 0
	f.Integer("n", &n, 1, 8)
	if o, ok := f.Object("options"); ok {
		o.Integer("depth", &depth, 0, 9)
	}
	fmt.Println(n)
	fmt.Println(f.Err())
	// Output:
	// 3
	// request: options.depth: Invalid type for 'options.depth': expected an integer, but got a string.
}
