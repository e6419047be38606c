# A static binary in an empty image: no shell, no package manager, no root.
#
#   docker build -t callgate .
#   docker run --rm -p 127.0.0.1:4141:4141 -v callgate-state:/var/lib/callgate callgate
#
# Questions are answered from inside the container's network:
#   docker exec -e CALLGATE_CONTROL_TOKEN=... CONTAINER /callgate approvals list
FROM golang:1.27.3 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/callgate ./cmd/callgate \
 && mkdir -p /out/state /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/callgate /callgate
COPY --from=build --chown=65532:65532 --chmod=700 /out/state /var/lib/callgate
COPY --from=build --chown=65532:65532 --chmod=700 /out/tmp /tmp
USER 65532:65532
ENV CALLGATE_STATE=/var/lib/callgate \
    CALLGATE_LISTEN=0.0.0.0:4141
VOLUME /var/lib/callgate
EXPOSE 4141
ENTRYPOINT ["/callgate"]
CMD ["serve"]
