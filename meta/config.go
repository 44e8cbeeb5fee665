package meta

// Config is a parsed config.json.
type Config struct{}
