package batches_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/heftai/heft/api/batches"
)

func ExampleRun() {
	dir, err := os.MkdirTemp("", "batch")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	line := `{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi"}}`
	if err := os.WriteFile(in, []byte(line), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"text": "there"}`) })
	backend := batches.Backend{Endpoints: map[string]http.Handler{"/v1/completions": answer}, MaxLine: 1 << 20, Parallel: 4}
	counts, err := batches.Run(context.Background(), batches.Job{Backend: backend, In: in, Out: out, Errors: out + ".errors"})
	fmt.Println(counts.Completed, counts.Failed, err)
	text, err := os.ReadFile(out)
	fmt.Print(string(text), err, "\n")
	// Output:
	// 1 0 <nil>
	// {"id":"batch_req_run_1","custom_id":"a","response":{"status_code":200,"request_id":"batch_req_run_1","body":{"text":"there"}},"error":null}
	// <nil>
}
