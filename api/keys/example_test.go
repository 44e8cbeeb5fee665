package keys_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/heftai/heft/api/keys"
)

func ExampleSet() {
	dir, _ := os.MkdirTemp("", "keys")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "keys.yaml")
	_ = os.WriteFile(path, []byte("- {name: alice, key: secret, requests_per_minute: 1}\n"), 0o600)
	set, err := keys.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	key := set.Find([]string{"secret"})
	leave, err := key.Enter()
	fmt.Println(key.Client().Name, err)
	leave()
	_, err = key.Enter()
	fmt.Println(err)
	// Output:
	// alice <nil>
	// request: The API key alice may send 1 requests per minute; retry after 60 s.
}
