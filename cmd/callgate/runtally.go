package main

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"callgate/config"
	"callgate/inspect"
)

// tally counts what a run is told of at its end: requests of the agent for
// providers, those of them whose answers are read, and denied calls.
type tally struct{ requests, read, denied atomic.Int64 }

// counted counts the requests that are meant for a provider: those for paths
// of callgate's own, and of those for a proxy the ones for hosts of upstreams.
func (t *tally) counted(h http.Handler, cfg *config.Config) http.Handler {
	hosts := map[string]bool{}
	for _, up := range cfg.Upstreams {
		if u, err := url.Parse(up.URL); err == nil {
			hosts[strings.ToLower(u.Hostname())] = true
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		meant := r.URL.Path != "/"
		if r.Method == http.MethodConnect || r.URL.IsAbs() {
			meant = hosts[strings.ToLower(r.URL.Hostname())]
		}
		if meant {
			t.requests.Add(1)
		}
		h.ServeHTTP(w, r)
	})
}

// reading counts the requests that a dialect reads.
func (t *tally) reading(list []inspect.Dialect) []inspect.Dialect {
	out := make([]inspect.Dialect, len(list))
	for i, d := range list {
		out[i] = counting{d, &t.read}
	}
	return out
}

// counting is a dialect that counts its requests.
type counting struct {
	inspect.Dialect
	n *atomic.Int64
}

// Request counts the request and reads it.
func (c counting) Request(h inspect.Head, body []byte) (inspect.Request, error) {
	c.n.Add(1)
	return c.Dialect.Request(h, body)
}
