"""The web pages: rendered by the server, and whole without script. docs/adr/0083-pages-are-rendered-by-the-server.md"""
