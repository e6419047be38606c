package proxy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"net/http"
	"sync"
)

// credentials are the headers by which providers tell their customers apart.
var credentials = [...]string{
	"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key",
	"Openai-Organization", "Openai-Project", "Cookie",
}

// PrincipalKey returns the function that names a tenant: HMAC-SHA256 with the
// given key over agent, upstream and the credential headers (authorization,
// x-api-key, x-goog-api-key, api-key, openai-organization, openai-project,
// cookie), in hex. Each part is hashed with its length, so that no two
// different sets give one text. Credentials are not kept.
func PrincipalKey(key []byte) func(agent, upstream string, h http.Header) string {
	own := append([]byte(nil), key...)
	pool := sync.Pool{New: func() any { return hmac.New(sha256.New, own) }}
	return func(agent, upstream string, h http.Header) string {
		mac := pool.Get().(hash.Hash)
		mac.Reset()
		var room [64]byte
		part := func(s string) {
			b := binary.AppendUvarint(room[:0], uint64(len(s)))
			mac.Write(append(b, s...))
		}
		part(agent)
		part(upstream)
		for _, name := range credentials {
			values := h[name]
			mac.Write(binary.AppendUvarint(room[:0], uint64(len(values))))
			for _, v := range values {
				part(v)
			}
		}
		sum := mac.Sum(room[:0])
		pool.Put(mac)
		return hex.EncodeToString(sum)
	}
}

func randomKey() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails: it ends the process instead
	return key
}
