"""People who do everything at once in the chats of platforms, and the model that answers them.

Each thing that a person does has a number, and the answer to it names that number.
"""
