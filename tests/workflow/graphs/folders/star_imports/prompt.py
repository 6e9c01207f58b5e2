DRAFT = "A first draft: "
